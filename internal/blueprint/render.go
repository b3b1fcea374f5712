package blueprint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// Input is everything that a manifest depends on.
type Input struct {
	Facts   Facts
	Payload payload.Manifest
	Spec    v1alpha1.WindowsMachineConfigSpec
	Logging Logging
	// OperatorVersion is the first part of the desired revision's name.
	OperatorVersion string
	// Salt is the salt of the confidential part: contract.SaltSize random bytes that are the same in all revisions.
	Salt []byte
	// Previous is the last published state, if any. If a fact exists but is invalid, nodes keep the value in Previous.
	Previous Desired
	// AcceptedKubelet is the last accepted fragment of kubelet's configuration, or nil. It applies while the
	// fragment in Spec is refused.
	AcceptedKubelet []byte
	// Now is the current time. Only messages about expired certificates depend on it.
	Now time.Time

	// Render sets fragment before it renders the programs.
	fragment fragment
}

// Desired is the desired state of the nodes.
type Desired struct {
	// Revision names the manifest: <operator version>-<first digits of the manifest's digest>.
	Revision     string
	Manifest     contract.Manifest
	Confidential contract.Confidential
	// Content is the manifest and the confidential part as nodes read them. Only Render sets it. Golden files omit it.
	Content contract.Latest `json:"-"`
	// KubeletVersion is the version that nodes will report.
	KubeletVersion string
	// KubeletFragment is the fragment of kubelet's configuration that is in force, normalised, or nil if there is none.
	KubeletFragment []byte
	// Off lists the features that nodes lack, sorted.
	Off []Off
	// Rejected lists the settings that nodes don't get, sorted. All other settings are in force.
	Rejected []*contract.Problem
}

// ConfigMapName returns the name of the manifest's ConfigMap.
func (d Desired) ConfigMapName() string { return contract.ServicesConfigMapPrefix + d.Revision }

// SecretName returns the name of the confidential part's Secret.
func (d Desired) SecretName() string { return contract.ServicesSecretPrefix + d.Revision }

// Off is a feature that nodes lack, and the reason.
type Off struct {
	Feature payload.Feature
	Reason  string
}

// part contains what one program adds to a manifest.
type part struct {
	services []contract.Service
	files    []contract.File
	off      []Off
}

// Render renders the desired state of every node. Its error joins a *contract.Problem for each obstacle, with the
// reason PayloadMissing, VersionUnsupported, ManifestInvalid or DesiredStateTooLarge. An invalid setting isn't an
// error: Rejected lists it.
func Render(in Input) (Desired, error) {
	fitting, skew := Fitting(in.Facts.KubernetesVersion, in.Payload)
	bin := newBinaries(payloadFor(in.Facts.NetworkType, fitting))
	if err := check(bin, skew); err != nil {
		return Desired{}, err
	}
	secret, public, rejected, err := confidential(&in, bin)
	if err != nil {
		return Desired{}, err
	}
	all, err := parts(in, bin)
	if err != nil {
		return Desired{}, err
	}
	manifest := contract.Manifest{
		Services:                sortedServices(all.services),
		Files:                   sortedFiles(append(all.files, bin.files(in.Facts.Platform, all.services)...)),
		EnvironmentVars:         public,
		WatchedEnvironmentVars:  proxyVariables(),
		ConfidentialEnvironment: secret.EnvironmentDigest(),
		PodNetwork:              in.Facts.podNetwork(),
		Daemon:                  in.Logging.daemon(in.Spec.Logging.Debug),
	}
	var content contract.Latest
	if content.Confidential, manifest.Confidential, err = secret.Encode(); err != nil {
		return Desired{}, err
	}
	if err = errors.Join(manifest.Validate(), secret.Validate()); err != nil {
		return Desired{}, err
	}
	if content.Manifest, err = manifest.Data(); err != nil {
		return Desired{}, contract.NewProblem(contract.ReasonManifestInvalid, "%v", err)
	}
	content.Revision = revisionName(in.OperatorVersion, contract.DataDigest(content.Manifest))
	return Desired{
		Revision:        content.Revision,
		Manifest:        manifest,
		Confidential:    secret,
		Content:         content,
		KubeletVersion:  bin.file(contract.PathKubelet).Version,
		KubeletFragment: in.fragment.raw(),
		Off:             sortedOff(all.off),
		Rejected:        sortedProblems(rejected),
	}, nil
}

func parts(in Input, bin binaries) (all part, err error) {
	renderers := []func(Input, binaries) (part, error){
		trust, containerd, kubelet, credentialProvider, exporter, csiProxy, cloudNode,
	}
	switch in.Facts.NetworkType {
	case NetworkExternal:
	case NetworkFlannel:
		renderers = append(renderers, flannel, cni, kubeProxy)
	default:
		renderers = append(renderers, hybridOverlay, cni, kubeProxy)
	}
	for _, render := range renderers {
		p, err := render(in, bin)
		if err != nil {
			return part{}, err
		}
		all.services = append(all.services, p.services...)
		all.files = append(all.files, p.files...)
		all.off = append(all.off, p.off...)
	}
	isCA := func(f contract.File) bool { return f.Path == contract.PathBootstrapCA }
	all.files[slices.IndexFunc(all.files, isCA)].Services = all.verifying()
	return all, nil
}

func check(bin binaries, skew *contract.Problem) error {
	var all []error
	if missing := bin.missing(required()...); len(missing) > 0 {
		all = append(all, contract.NewProblem(contract.ReasonPayloadMissing, "the payload lacks %s",
			strings.Join(missing, ", ")))
	}
	if skew != nil {
		all = append(all, skew)
	}
	return errors.Join(all...)
}

func required() []string {
	return []string{contract.PathKubelet, contract.PathKubeLogRunner, contract.PathContainerd,
		contract.PathContainerdShim, contract.PathDaemon}
}

func sortedServices(services []contract.Service) []contract.Service {
	slices.SortFunc(services, func(a, b contract.Service) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
	})
	return services
}

func sortedFiles(files []contract.File) []contract.File {
	slices.SortFunc(files, func(a, b contract.File) int {
		return cmp.Or(cmp.Compare(strings.ToLower(a.Path), strings.ToLower(b.Path)), cmp.Compare(a.Path, b.Path))
	})
	return files
}

func sortedOff(off []Off) []Off {
	slices.SortFunc(off, func(a, b Off) int {
		return cmp.Or(cmp.Compare(a.Feature, b.Feature), cmp.Compare(a.Reason, b.Reason))
	})
	return slices.Compact(off)
}

func sortedProblems(problems []*contract.Problem) []*contract.Problem {
	slices.SortFunc(problems, func(a, b *contract.Problem) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Detail, b.Detail))
	})
	return slices.CompactFunc(problems, func(a, b *contract.Problem) bool { return *a == *b })
}

// command joins the words of a command line. It doesn't quote the words, because no word contains a space or a quote:
// all words are constants, variables or checked facts.
func command(words ...string) string { return strings.Join(words, " ") }

func rendering(path string, err error) error {
	return fmt.Errorf("rendering %s: %w", path, err)
}
