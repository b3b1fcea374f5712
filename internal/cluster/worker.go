package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	machineconfigurationv1 "github.com/openshift/api/machineconfiguration/v1"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/blueprint"
)

const (
	workerPool          = "worker"
	nameWorkerPool      = "the MachineConfigPool worker"
	kubeletUnit         = "kubelet.service"
	credentialFile      = "/etc/kubernetes/credential-providers/ecr-credential-provider.yaml"
	credentialKind      = "CredentialProviderConfig"
	credentialGroup     = "kubelet.config.k8s.io/"
	maxProviders        = 16
	maxCredentialConfig = 64 << 10
)

// worker reads how Linux workers start kubelet. It reads the rendered MachineConfig that the workers use.
func (r *Reader) worker(ctx context.Context, facts *blueprint.Facts) error {
	known, err := last(ctx, &r.common, facts, nameWorkerPool, func() (worker, error) { return r.readWorker(ctx) })
	facts.CloudProvider, facts.CredentialProviders = known.CloudProvider, known.CredentialProviders
	return err
}

type worker struct {
	CloudProvider       string
	CredentialProviders *kubeletconfigv1.CredentialProviderConfig
}

func (r *Reader) readWorker(ctx context.Context) (known worker, err error) {
	var pool machineconfigurationv1.MachineConfigPool
	if err = get(ctx, r.Cached, &pool, client.ObjectKey{Name: workerPool}, nameWorkerPool); err != nil {
		return known, err
	}
	name := renderedName(&pool)
	if name == "" {
		return known, incomplete("%s names no rendered configuration yet; see whether the cluster operator "+
			"machine-config is healthy", nameWorkerPool)
	}
	what := "the MachineConfig " + name
	var object machineconfigurationv1.MachineConfig
	if err = get(ctx, r.Live, &object, client.ObjectKey{Name: name}, what); err != nil {
		return known, err
	}
	var config ignition
	if json.Unmarshal(object.Spec.Config.Raw, &config) != nil {
		return known, incomplete("%s: spec.config is not an Ignition configuration in JSON", what)
	}
	var all []error
	if known.CloudProvider, err = cloudProvider(config); err != nil {
		all = append(all, incomplete("%s: unit %s: %s", what, kubeletUnit, err))
	}
	if known.CredentialProviders, err = credentialProviders(config); err != nil {
		all = append(all, incomplete("%s: file %s: %s", what, credentialFile, err))
	}
	return known, errors.Join(all...)
}

// renderedName returns the name of the MachineConfig that all workers of the pool use. If the workers of a new pool
// don't use one yet, renderedName returns the name of the MachineConfig that they will get.
func renderedName(pool *machineconfigurationv1.MachineConfigPool) string {
	if name := pool.Status.Configuration.Name; name != "" {
		return name
	}
	return pool.Spec.Configuration.Name
}

// cloudProvider returns the last value of kubelet's flag --cloud-provider, written as --flag=value or --flag value.
func cloudProvider(config ignition) (value string, err error) {
	command, err := config.execStart(kubeletUnit)
	if err != nil {
		return "", err
	}
	flag := regexp.MustCompile(`[\s"']--?cloud-provider(?:=|\s+)["']?([^\s"'-][^\s"']*)?`)
	for _, match := range flag.FindAllStringSubmatch(command+" ", -1) {
		value = match[1]
	}
	if value != "" && value != blueprint.CloudProviderExternal {
		return "", fmt.Errorf("workers use the cloud provider %.63q, which no supported kubelet has; the only "+
			"supported one is %q", value, blueprint.CloudProviderExternal)
	}
	return value, nil
}

// legalProvider reports whether a credential provider's program, which kubelet runs from C:\k, may have this name.
func legalProvider(name string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}(\.exe)?$`).MatchString(name)
}

func credentialProviders(config ignition) (*kubeletconfigv1.CredentialProviderConfig, error) {
	text, ok, err := config.file(credentialFile)
	if err != nil || !ok {
		return nil, err
	}
	if len(text) > maxCredentialConfig {
		return nil, errors.New("it is larger than 64 KiB")
	}
	var providers kubeletconfigv1.CredentialProviderConfig
	if err = yaml.Unmarshal(text, &providers); err != nil {
		return nil, errors.New("it is not the YAML of a " + credentialKind)
	}
	if providers.Kind != credentialKind || !strings.HasPrefix(providers.APIVersion, credentialGroup) {
		return nil, errors.New("it is not a " + credentialKind + " of " + credentialGroup)
	}
	if len(providers.Providers) == 0 || len(providers.Providers) > maxProviders {
		return nil, errors.New("it has no providers, or too many")
	}
	for _, p := range providers.Providers {
		if !legalProvider(p.Name) {
			return nil, errors.New("a provider's name can't be the name of a program")
		}
	}
	return &providers, nil
}
