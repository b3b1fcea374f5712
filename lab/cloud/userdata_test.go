package cloud_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/userdata"
	"github.com/windows-nodes/wmco/lab/cloud"
)

// keyPair returns a private key in OpenSSH PEM format, and its public key.
func keyPair(t *testing.T) (private []byte, public ssh.PublicKey) {
	t.Helper()
	key, secret, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(secret, "")
	if err != nil {
		t.Fatal(err)
	}
	if public, err = ssh.NewPublicKey(key); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block), public
}

func authorizedLine(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func platforms() map[configv1.PlatformType]contract.Platform {
	return map[configv1.PlatformType]contract.Platform{
		configv1.AWSPlatformType: contract.PlatformAWS, configv1.AzurePlatformType: contract.PlatformAzure,
		configv1.GCPPlatformType:     contract.PlatformGCP,
		configv1.VSpherePlatformType: contract.PlatformVSphere,
		configv1.NutanixPlatformType: contract.PlatformNutanix,
	}
}

func TestUserDataLetsTheOperatorIn(t *testing.T) {
	t.Parallel()
	_, public := keyPair(t)
	hostKey, hostPublic := keyPair(t)
	for platform, name := range platforms() {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			text, err := userdata.Render(userdata.Input{Platform: name, PublicKey: authorizedLine(public),
				HostKey: hostKey})
			if err != nil {
				t.Fatal(err)
			}
			got, err := cloud.Evaluate(platform, text, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Keys) != 1 || !bytes.Equal(got.Keys[0].Marshal(), public.Marshal()) {
				t.Errorf("the authorised keys are %v", got.Keys)
			}
			if want := []int{22, 9182, 10250}; !slices.Equal(got.Ports, want) {
				t.Errorf("the open ports are %v, want %v", got.Ports, want)
			}
			switch {
			case !userdata.CarriesHostKey(name):
				if got.HostKey != nil {
					t.Error("the user data sets a host key, but it must not")
				}
			case got.HostKey == nil || !bytes.Equal(got.HostKey.PublicKey().Marshal(), hostPublic.Marshal()):
				t.Error("the user data sets another host key")
			}
			if want := platform != configv1.AzurePlatformType; got.Persist != want {
				t.Errorf("the script runs at each boot: %v, want %v", got.Persist, want)
			}
		})
	}
}

func TestUserDataKeepsKeysThatOthersAuthorized(t *testing.T) {
	t.Parallel()
	_, public := keyPair(t)
	_, other := keyPair(t)
	for platform, name := range platforms() {
		text, err := userdata.Render(userdata.Input{Platform: name, PublicKey: authorizedLine(public)})
		if err != nil {
			t.Fatal(err)
		}
		for had, authorized := range map[string]string{
			"theirs":     authorizedLine(other) + " admin@corp\n",
			"both":       authorizedLine(public) + "\r\n" + authorizedLine(other),
			"them twice": authorizedLine(other) + "\n\n" + authorizedLine(public) + "\n",
		} {
			got, err := cloud.Evaluate(platform, text, []byte(authorized))
			if err != nil || len(got.Keys) != 2 || !bytes.Equal(got.Keys[0].Marshal(), public.Marshal()) ||
				!bytes.Equal(got.Keys[1].Marshal(), other.Marshal()) {
				t.Errorf("%s, a host that had %s: authorised keys %v, %v", name, had, got.Keys, err)
			}
		}
	}
}

func TestUserDataThatIsBrokenLetsNobodyIn(t *testing.T) {
	t.Parallel()
	_, public := keyPair(t)
	whole, err := userdata.Render(userdata.Input{Platform: contract.PlatformAWS, PublicKey: authorizedLine(public)})
	if err != nil {
		t.Fatal(err)
	}
	broken := map[string]string{
		"empty":                       "",
		"another platform's wrapping": strings.ReplaceAll(whole, "powershell>", "script>"),
		"no end":                      strings.ReplaceAll(whole, "</powershell>", ""),
		"a brace is missing":          strings.Replace(whole, "\n}\n", "\n\n", 1),
		"a quote is missing":          strings.Replace(whole, "'", "", 1),
		"the key is only a comment":   strings.ReplaceAll(whole, "$publicKey = ", "# $publicKey = "),
		"the key gets into another file": strings.ReplaceAll(whole, "'administrators_authorized_keys'",
			"'authorized_keys'"),
		"the variable is called otherwise": strings.ReplaceAll(whole, "$publicKey = ", "$otherKey = "),
	}
	for name, text := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := cloud.Evaluate(configv1.AWSPlatformType, text, nil)
			if len(got.Keys) > 0 {
				t.Errorf("the authorised keys are %v, %v", got.Keys, err)
			}
		})
	}
	if _, err := cloud.Evaluate(configv1.GCPPlatformType, whole, nil); err == nil {
		t.Error("Google's agent accepted user data with tags")
	}
	if _, err := cloud.Evaluate(configv1.AzurePlatformType, whole, nil); err == nil {
		t.Error("Azure accepted user data with tags")
	}
}
