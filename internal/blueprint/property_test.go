package blueprint_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// seeds is the number of random inputs for each property.
const seeds = 100

// random returns the facts of a cluster that Windows nodes can join. It includes each optional part at random.
func random(r *rand.Rand) blueprint.Input {
	in := input()
	platforms := []contract.Platform{"none", "vsphere", "nutanix", "aws", "azure", "gcp", "openstack"}
	in.Facts.Platform = platforms[r.IntN(len(platforms))]
	in.Facts.VXLANPort = uint16(r.IntN(2) * 9898)
	in.Spec.Logging.Debug = r.IntN(2) == 0
	if r.IntN(4) == 0 {
		onFlannel(&in.Facts)
	}
	if r.IntN(2) == 0 {
		in.Facts.CloudProvider = blueprint.CloudProviderExternal
	}
	if r.IntN(2) == 0 {
		in.Facts.CredentialProviders = credentialProviders()
	}
	if r.IntN(2) == 0 {
		in.Facts.Proxy = blueprint.Proxy{HTTP: "http://proxy:3128", None: "localhost"}
	}
	if r.IntN(2) == 0 {
		in.Logging = blueprint.Logging{}
	}
	needed := []string{"kubelet.exe", "kube-log-runner.exe", "containerd.exe", "containerd-shim-runhcs-v1.exe",
		"windows-instance-config-daemon.exe"}
	var gone []string
	for _, f := range in.Payload.Files {
		if !slices.Contains(needed, f.Name) && r.IntN(4) == 0 {
			gone = append(gone, f.Name)
		}
	}
	in.Payload = lacking(gone...)
	return in
}

// wellFormed returns an error if no daemon could apply the manifest. For example, bootstrap services must not need a
// Node or a network, because neither exists when they start.
func wellFormed(m contract.Manifest) error {
	var all []error
	place := map[string]int{}
	services := map[string]contract.Service{}
	for i, s := range m.StartOrder() {
		place[s.Name], services[s.Name] = i, s
	}
	for _, s := range m.Services {
		needsNetwork := slices.ContainsFunc(s.HostVariables, func(v contract.HostVariable) bool { return v.Fact.Network() })
		if s.Bootstrap && (needsNetwork || len(s.NodeVariables) > 0) {
			all = append(all, fmt.Errorf("bootstrap service %s needs a Node or a network", s.Name))
		}
		for _, d := range s.Dependencies {
			if other, known := services[d]; !known || place[d] >= place[s.Name] || s.Bootstrap && !other.Bootstrap {
				all = append(all, fmt.Errorf("service %s can't depend on %s", s.Name, d))
			}
		}
		for _, other := range m.Services {
			if s.Bootstrap && !other.Bootstrap && s.Priority >= other.Priority {
				all = append(all, fmt.Errorf("bootstrap service %s does not start before %s", s.Name, other.Name))
			}
		}
	}
	for _, f := range m.Files {
		if (f.Digest == "") == (f.Content == "") || f.Digest != "" && (f.Size <= 0 || f.Late() || len(f.HostVariables) > 0) {
			all = append(all, fmt.Errorf("file %s is neither a blob nor a text", f.Path))
		}
		for _, name := range f.Services {
			if s, known := services[name]; !known || s.Bootstrap && f.Late() {
				all = append(all, fmt.Errorf("service %s can't need file %s", name, f.Path))
			}
		}
	}
	return errors.Join(all...)
}

func TestEveryManifestIsValidAndTheSameHoweverThePayloadIsOrdered(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := random(r)
		first := render(t, in)
		if err := errors.Join(first.Manifest.Validate(), wellFormed(first.Manifest)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		shuffled := in
		shuffled.Payload.Files = slices.Clone(in.Payload.Files)
		r.Shuffle(len(shuffled.Payload.Files), func(i, j int) {
			shuffled.Payload.Files[i], shuffled.Payload.Files[j] = shuffled.Payload.Files[j], shuffled.Payload.Files[i]
		})
		second := render(t, shuffled)
		one, err := first.Manifest.Data()
		if err != nil {
			t.Fatal(err)
		}
		two, err := second.Manifest.Data()
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(one, two) || first.Revision != second.Revision {
			t.Fatalf("seed %d: the same input has the revisions %s and %s", seed, first.Revision, second.Revision)
		}
		back, err := contract.ManifestFromConfigMap(one)
		if err != nil || back.Digest() != first.Manifest.Digest() {
			t.Fatalf("seed %d: decoding the manifest gives %s, %v", seed, back.Digest(), err)
		}
	}
}

func TestEveryProgramThatACommandNamesIsAManagedFile(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		m := render(t, random(rand.New(rand.NewPCG(seed, 2)))).Manifest
		for _, s := range m.Services {
			for word := range strings.FieldsSeq(s.Command) {
				if !strings.HasSuffix(strings.ToLower(word), ".exe") {
					continue
				}
				if f := file(t, m, word); !slices.Contains(f.Services, s.Name) {
					t.Errorf("seed %d: service %s is not restarted when %s changes", seed, s.Name, word)
				}
			}
		}
	}
}

func TestEveryConfigurationFileThatACommandNamesIsManagedOrMadeByAProgram(t *testing.T) {
	t.Parallel()
	made := []string{contract.PathKubeconfig, contract.PathBootstrapKubeconfig, contract.PathDaemonKubeconfig,
		contract.PathFlannelSubnet}
	for seed := range uint64(seeds) {
		m := render(t, random(rand.New(rand.NewPCG(seed, 3)))).Manifest
		for _, s := range m.Services {
			for word := range strings.FieldsSeq(s.Command) {
				_, value, _ := strings.Cut(word, "=")
				if !strings.HasPrefix(value, `C:\k\`) || !strings.Contains(value[4:], ".") ||
					slices.Contains(made, value) {
					continue
				}
				file(t, m, value)
			}
		}
	}
}

func TestVariablesReplaceNothingButThemselves(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		m := render(t, random(rand.New(rand.NewPCG(seed, 4)))).Manifest
		names := map[string]bool{}
		texts := map[string][]string{}
		for _, s := range m.Services {
			for _, v := range s.NodeVariables {
				names[v.Name], texts[s.Command] = true, append(texts[s.Command], v.Name)
			}
			for _, v := range s.HostVariables {
				names[v.Name], texts[s.Command] = true, append(texts[s.Command], v.Name)
			}
		}
		for _, f := range m.Files {
			for _, v := range f.NodeVariables {
				names[v.Name], texts[f.Content] = true, append(texts[f.Content], v.Name)
			}
			for _, v := range f.HostVariables {
				names[v.Name], texts[f.Content] = true, append(texts[f.Content], v.Name)
			}
		}
		for a := range names {
			for b := range names {
				if a != b && strings.Contains(a, b) {
					t.Fatalf("variable %s is part of %s", b, a)
				}
			}
		}
		for text, used := range texts {
			for _, name := range used {
				if strings.Count(text, name) != 1 {
					t.Errorf("variable %s is %d times in %q", name, strings.Count(text, name), text)
				}
			}
		}
	}
}

func TestNoCommandNeedsQuotes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		for _, s := range render(t, random(rand.New(rand.NewPCG(seed, 5)))).Manifest.Services {
			if strings.ContainsAny(s.Command, "\"'%^&|<>\t") || strings.Contains(s.Command, "  ") {
				t.Errorf("%s: %s", s.Name, s.Command)
			}
		}
	}
}
