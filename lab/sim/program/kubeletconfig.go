package program

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/util/cert"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// readKubeletConfig reads kubelet's configuration file, which is JSON or YAML, and validates it.
func readKubeletConfig(files winos.Files, path string) (kubeletconfigv1beta1.KubeletConfiguration, error) {
	var config kubeletconfigv1beta1.KubeletConfiguration
	content, err := winos.ReadFile(files, path)
	if err != nil {
		return config, fmt.Errorf("loading kubelet's configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return config, fmt.Errorf("loading kubelet's configuration %s: %w", path, err)
	}
	if err := checkKubeletConfig(files, config); err != nil {
		return config, fmt.Errorf("validating kubelet's configuration %s: %w", path, err)
	}
	return config, nil
}

func checkKubeletConfig(files winos.Files, c kubeletconfigv1beta1.KubeletConfiguration) error {
	if c.APIVersion != kubeletconfigv1beta1.SchemeGroupVersion.String() || c.Kind != "KubeletConfiguration" {
		return fmt.Errorf("no kind %q is registered for version %q", c.Kind, c.APIVersion)
	}
	if c.ContainerRuntimeEndpoint == "" {
		return errors.New("the containerRuntimeEndpoint was not specified or empty")
	}
	for _, taint := range c.RegisterWithTaints {
		switch taint.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return fmt.Errorf("registerWithTaints: invalid taint effect %q of %s", taint.Effect, taint.Key)
		}
	}
	for name, amount := range c.SystemReserved {
		if _, err := resource.ParseQuantity(amount); err != nil {
			return fmt.Errorf("systemReserved: %s: %w", name, err)
		}
	}
	if path := c.Authentication.X509.ClientCAFile; path != "" {
		content, err := winos.ReadFile(files, path)
		if err != nil {
			return fmt.Errorf("loading the client CA file: %w", err)
		}
		if _, err := cert.ParseCertsPEM(content); err != nil {
			return fmt.Errorf("loading the client CA file %s: %w", path, err)
		}
	}
	return nil
}
