package cloud

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
)

// Platforms returns the simulated platforms.
func Platforms() []string {
	return []string{
		string(configv1.AWSPlatformType), string(configv1.AzurePlatformType), string(configv1.GCPPlatformType),
		string(configv1.NutanixPlatformType), string(configv1.VSpherePlatformType),
	}
}

// netBIOS is the maximum length of a computer name that Windows Setup assigns.
const netBIOS = 15

// ProviderID returns the provider ID of an instance.
func ProviderID(platform configv1.PlatformType, machine string) string {
	switch platform {
	case configv1.AWSPlatformType:
		return "aws:///us-east-1a/i-0" + random(8)
	case configv1.AzurePlatformType:
		return "azure:///subscriptions/" + uuid() +
			"/resourceGroups/lab-rg/providers/Microsoft.Compute/virtualMachines/" + machine
	case configv1.GCPPlatformType:
		return "gce://lab/us-central1-a/" + machine
	case configv1.VSpherePlatformType:
		return "vsphere://" + uuid()
	case configv1.NutanixPlatformType:
		return "nutanix://" + uuid()
	}
	return "lab://" + machine
}

// hostname returns the Windows host name after the first boot.
func hostname(platform configv1.PlatformType, machine string) string {
	switch platform {
	case configv1.AWSPlatformType:
		return "EC2AMAZ-" + strings.ToUpper(utilrand.String(7))
	case configv1.AzurePlatformType, configv1.GCPPlatformType:
		return machine[:min(len(machine), netBIOS)]
	}
	return "WIN-" + strings.ToUpper(utilrand.String(11))
}

// user returns the name of the administrator in the images of the platform.
func user(platform configv1.PlatformType) string {
	if platform == configv1.AzurePlatformType {
		return "capi"
	}
	return "Administrator"
}

func random(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

func uuid() string {
	return fmt.Sprintf("%s-%s-%s-%s-%s", random(4), random(2), random(2), random(2), random(6))
}
