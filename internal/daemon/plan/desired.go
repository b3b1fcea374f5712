package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Scope selects the part of the manifest to apply.
type Scope int

// Scopes.
const (
	// Bootstrap selects the bootstrap services, and the files that don't depend on the Node. Nothing is removed.
	Bootstrap Scope = iota
	// Everything selects the whole manifest.
	Everything
)

// Desired is the desired state of the host.
type Desired struct {
	Scope Scope
	// Services are in the order of their starts.
	Services []Service
	Files    []File
	// Kubeconfigs are not files of the manifest: programs on the host write them. If such a file exists, it must have
	// the CA in Content.
	Kubeconfigs []File
	// Environment holds the system variables to set. Variables in Watched that are not in Environment are deleted.
	Environment map[string]string
	Watched     []string
	// Roots maps fingerprints to the CA certificates (DER) for the root store: see Fingerprint.
	Roots map[string][]byte
	// Routes lists the addresses that the host must reach by the default route.
	Routes []netip.Addr
	// Network is the name of the pods' HNS network.
	Network string
	// RegistryUnknown means that containerd's registry files are unknown. Then none of them is removed.
	RegistryUnknown bool
	// Facts are the facts that were used to compute the desired state.
	Facts map[contract.Fact]string
	// Problems lists mistakes in the desired state itself.
	Problems []*contract.Problem
}

// Service is one Windows service.
type Service struct {
	winos.ServiceConfig
	// Inputs is the digest of everything that the service's process reads at its start. A change restarts the service.
	Inputs string
	// RequiresFile is another program's file, or empty. If the file is missing, the service stays unchanged.
	RequiresFile string
	// Waiting is the problem that a value is unknown, or nil. While it is set, the service stays unchanged.
	Waiting *contract.Problem
}

// File is one file.
type File struct {
	Path   string
	Digest string
	// Content is nil for a file that is copied from the store.
	Content  []byte
	Size     int64
	Access   winos.Access
	Services []string
	// Waiting is the problem that a value is unknown, or nil. While it is set, the file stays unchanged.
	Waiting *contract.Problem
}

// Recovery returns how the service manager restarts a service that ends unexpectedly: the delays before the first and
// later restarts, and how long the service must run until the first delay applies again.
func Recovery() (delays []time.Duration, reset time.Duration) {
	return []time.Duration{10 * time.Second, 30 * time.Second, 60 * time.Second, 120 * time.Second}, 300 * time.Second
}

// DaemonRecovery is like Recovery, but for the daemon's own service. The daemon also exits when its exe is replaced:
// once to start the new exe, twice more if the new exe fails, and once to start the previous exe. So the first four
// restarts have only a short delay.
func DaemonRecovery() (delays []time.Duration, reset time.Duration) {
	delays, reset = Recovery()
	return append(slices.Repeat([]time.Duration{time.Second}, 4), delays...), reset
}

// Description returns the description that marks a service as a service of the operator.
func Description(service string) string { return contract.ManagedDescription + " " + service }

// Input is the input of Resolve.
type Input struct {
	Manifest     contract.Manifest
	Confidential contract.Confidential
	// Registry lists containerd's files about registries. nil means unknown. An empty list means that there are none.
	Registry []contract.File
	// Inherited reports whether the service manager still passes a deleted variable to services. name is in lower case.
	Inherited func(name string) bool
	Scope     Scope
	Node      Lookup[Path]
	Host      Lookup[contract.Fact]
}

// Resolve computes the desired state. The manifest must be valid.
func Resolve(in Input) Desired {
	d := Desired{Scope: in.Scope, Watched: in.Manifest.WatchedEnvironmentVars, RegistryUnknown: in.Registry == nil,
		Network: in.Manifest.HNSNetwork(), Facts: map[contract.Fact]string{}}
	host := in.Host
	in.Host = func(f contract.Fact) (string, *contract.Problem) {
		value, problem := host(f)
		if problem == nil {
			d.Facts[f] = value
		}
		return value, problem
	}
	d.Environment = contract.Environment(in.Manifest, in.Confidential)
	d.roots(in.Confidential.Trust)
	for _, f := range in.Manifest.Files {
		if in.Scope == Bootstrap && f.Late() {
			continue
		}
		d.Files = append(d.Files, resolveFile(f, in))
	}
	for _, f := range slices.Concat(in.Confidential.Files, in.Registry) {
		resolved := resolveFile(f, in)
		resolved.Access = winos.AccessAdministrators // for every path
		d.Files = append(d.Files, resolved)
	}
	if in.Scope == Everything {
		d.kubeconfigs()
	}
	if in.Scope == Everything && AsksFor(in.Manifest, contract.FactAWSHostname) {
		d.Routes = []netip.Addr{MetadataAddress()}
	}
	waiting := map[string]*contract.Problem{}
	for _, s := range in.Manifest.StartOrder() {
		if in.Scope == Bootstrap && !s.Bootstrap {
			continue
		}
		resolved := resolveService(s, d, in)
		// If a service has to wait, the services that depend on it wait for the same reason.
		for _, dependency := range s.Dependencies {
			if resolved.Waiting == nil {
				resolved.Waiting = waiting[dependency]
			}
		}
		waiting[s.Name] = resolved.Waiting
		d.Services = append(d.Services, resolved)
	}
	return d
}

// kubeconfigs fills Kubeconfigs with the CA from the manifest's CA file, because the kubeconfigs from a join may have a
// different CA. A change of the bootstrap kubeconfig doesn't restart kubelet, because kubelet may have the key of its
// certificate request only in memory.
func (d *Desired) kubeconfigs() {
	i := slices.IndexFunc(d.Files, func(f File) bool { return f.Path == contract.PathBootstrapCA })
	if i < 0 || len(d.Files[i].Content) == 0 {
		return
	}
	ca := d.Files[i]
	add := func(path string, services []string) {
		d.Kubeconfigs = append(d.Kubeconfigs,
			File{Path: path, Digest: ca.Digest, Content: ca.Content, Services: services})
	}
	add(contract.PathBootstrapKubeconfig, nil)
	add(contract.PathKubeconfig, ca.Services)
	for _, token := range contract.ServiceTokens() {
		add(token.Kubeconfig, []string{token.Service})
	}
}

// Kubeconfig returns the entry of Kubeconfigs with this path.
func (d *Desired) Kubeconfig(path string) File {
	return d.Kubeconfigs[slices.IndexFunc(d.Kubeconfigs, func(f File) bool { return f.Path == path })]
}

// roots parses the CA certificates (PEM) of the manifest. It skips a text that is not a certificate and adds a problem.
// The operator publishes only valid certificates.
func (d *Desired) roots(trust []string) {
	d.Roots = map[string][]byte{}
	for i, text := range trust {
		block, _ := pem.Decode([]byte(text))
		if block == nil || block.Type != "CERTIFICATE" {
			d.Problems = append(d.Problems, contract.NewProblem(contract.ReasonTrustFailed, "CA %d of the "+
				"manifest's is no certificate", i+1))
			continue
		}
		d.Roots[Fingerprint(block.Bytes)] = block.Bytes
	}
}

// Fingerprint returns a certificate's fingerprint: the lower-case hex SHA-256 of its DER.
func Fingerprint(der []byte) string { return contract.Digest(der) }

// AsksFor reports whether a service's command or a file of the manifest contains a fact.
func AsksFor(m contract.Manifest, f contract.Fact) bool {
	asks := func(variables []contract.HostVariable) bool {
		return slices.ContainsFunc(variables, func(v contract.HostVariable) bool { return v.Fact == f })
	}
	return slices.ContainsFunc(m.Services, func(s contract.Service) bool { return asks(s.HostVariables) }) ||
		slices.ContainsFunc(m.Files, func(file contract.File) bool { return asks(file.HostVariables) })
}

func resolveFile(f contract.File, in Input) File {
	resolved := File{Path: f.Path, Digest: f.Digest, Size: f.Size, Access: state.Access(f.Path), Services: f.Services}
	if f.Digest != "" {
		return resolved
	}
	values, problem := look(f.NodeVariables, f.HostVariables, in)
	if problem != nil {
		resolved.Waiting = problem
		return resolved
	}
	resolved.Content = []byte(substitute(f.Content, values))
	resolved.Digest, resolved.Size = contract.Digest(resolved.Content), int64(len(resolved.Content))
	return resolved
}

func resolveService(s contract.Service, t Desired, in Input) Service {
	delays, reset := Recovery()
	resolved := Service{ServiceConfig: winos.ServiceConfig{
		Name: s.Name, Description: Description(s.Name), Dependencies: s.Dependencies,
		Environment: serviceEnvironment(t, in), Recovery: delays, RecoveryReset: reset,
	}, RequiresFile: s.RequiresFile}
	values, problem := look(s.NodeVariables, s.HostVariables, in)
	resolved.Waiting = problem
	resolved.Command = substitute(s.Command, values)
	type input struct{ Path, Digest string }
	var files []input
	for _, f := range t.Files {
		if !slices.Contains(f.Services, s.Name) {
			continue
		}
		if resolved.Waiting == nil {
			resolved.Waiting = f.Waiting
		}
		files = append(files, input{strings.ToLower(f.Path), f.Digest})
	}
	slices.SortFunc(files, func(a, b input) int { return strings.Compare(a.Path, b.Path) })
	resolved.Inputs = digestOf(resolved.Command, resolved.Environment, files)
	return resolved
}

// serviceEnvironment returns the variables for a service's own process. They include the desired variables of the
// system, because the service manager itself passes on only the variables that existed at boot. A variable that existed
// at boot and was deleted later gets an empty value until the next boot. All programs treat an empty value as unset.
func serviceEnvironment(t Desired, in Input) map[string]string {
	all := maps.Clone(t.Environment)
	has := func(name string) bool {
		for other := range t.Environment {
			if strings.EqualFold(other, name) {
				return true
			}
		}
		return false
	}
	for _, name := range t.Watched {
		if in.Inherited != nil && in.Inherited(strings.ToLower(name)) && !has(name) {
			if all == nil {
				all = map[string]string{}
			}
			all[name] = ""
		}
	}
	return all
}

// digestOf encodes values in JSON, which sorts maps by key, and returns the digest.
func digestOf(values ...any) string {
	sum := sha256.New()
	encoder := json.NewEncoder(sum)
	for _, v := range values {
		_ = encoder.Encode(v) // these values always encode, and a hash accepts every write
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// look returns the values of variables, or the first problem.
func look(node []contract.NodeVariable, host []contract.HostVariable, in Input) (map[string]string, *contract.Problem) {
	values := make(map[string]string, len(node)+len(host))
	for _, v := range host {
		value, problem := in.Host(v.Fact)
		if problem != nil {
			return nil, problem
		}
		values[v.Name] = value
	}
	for _, v := range node {
		value, problem := in.Node(Path(v.JSONPath))
		if problem != nil {
			return nil, problem
		}
		if !plain(value) {
			return nil, contract.NewProblem(contract.ReasonManifestInvalid,
				"the Node's %s is %q, which may not stand in a command or file", v.JSONPath, value)
		}
		values[v.Name] = value
	}
	return values, nil
}

// `plain` returns true if a value of the Node is safe in a command line or a configuration file. Other clients can
// write to the Node, so characters that could end a word, a string or a line are refused.
func plain(value string) bool {
	return value != "" && strings.Trim(value,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/,=@+-[]") == ""
}

// substitute replaces the names of variables in text with their values. It replaces all names in one pass, so names in
// values stay unchanged. Longer names come first, so a name doesn't match the start of a longer name.
func substitute(text string, values map[string]string) string {
	names := slices.SortedFunc(maps.Keys(values),
		func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(names))
	for _, name := range names {
		pairs = append(pairs, name, values[name])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// NodePaths lists the JSONPaths of the Node's fields that a manifest uses.
func NodePaths(m contract.Manifest) (paths []Path) {
	collect := func(variables []contract.NodeVariable) {
		for _, v := range variables {
			if p := Path(v.JSONPath); !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	for _, s := range m.Services {
		collect(s.NodeVariables)
	}
	for _, f := range m.Files {
		collect(f.NodeVariables)
	}
	return paths
}
