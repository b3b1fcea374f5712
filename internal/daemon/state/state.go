package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// State is the content of the state file. The zero value is the state of a host that we never changed.
type State struct {
	// NodeName is the name of this host's Node. It is empty until bootstrap has determined the name.
	NodeName string `json:"nodeName,omitempty"`
	// NodeIP is the node's address in its WindowsInstance. If it is empty, the default route's address applies.
	NodeIP string `json:"nodeIP,omitempty"`
	// LastIP is the node's address if NodeIP is empty. It is the address that the default route had. The node keeps
	// LastIP while the host has this address, even if the default route changes.
	LastIP string `json:"lastIP,omitempty"`
	// SourceVIP is the last address of kube-proxy's endpoint. A reboot deletes the endpoint, but kube-proxy's
	// configuration still contains the address. So the next endpoint is created with the same address.
	SourceVIP string `json:"sourceVIP,omitempty"`
	Revision
	// Failed is the last revision that failed, or nil. No daemon retries it before Failed.Until.
	Failed *FailedRevision `json:"failed,omitempty"`
	// Verified reports that the host has been completely in the desired state at least once. Until then, the host rolls
	// back to the revision in Before if the desired state fails.
	Verified bool `json:"verified,omitempty"`
	// Before is the last verified desired state before this one, or nil. Its payload stays on the host, for a rollback.
	Before *Revision `json:"before,omitempty"`
	// Update is the trial of a new program of the daemon. It is nil if no program is on trial.
	Update *Update `json:"update,omitempty"`
	// Faults are the failures that existed in the last pass without a trial, including services that crashed
	// repeatedly. If a revision on trial then fails in the same way, the revision isn't blamed.
	Faults []Fault `json:"faults,omitempty"`
	// NodeValues maps the JSONPaths of the manifest to the values of the Node. With these values, services start while
	// the API server is unreachable.
	NodeValues map[string]string `json:"nodeValues,omitempty"`
	// HostValues are the facts that can determine the Node's name: see plan.Naming. The node keeps the first values,
	// because the cloud isn't always reachable, and because a host that joins a domain gets a different full name.
	HostValues map[contract.Fact]string `json:"hostValues,omitempty"`

	// RPCDir is the RPC directory in the home directory of the user that the operator used for the join.
	RPCDir string `json:"rpcDir,omitempty"`

	Changes
}

// Changes records what the daemon changed on the host. Cleanup reverts these changes.
type Changes struct {
	// HostnameBefore was the host's name before the daemon changed it to HostnameSet. Both are empty without a change.
	HostnameBefore string   `json:"hostnameBefore,omitempty"`
	HostnameSet    string   `json:"hostnameSet,omitempty"`
	Reboots        *Reboots `json:"reboots,omitempty"`
	Features       []string `json:"features,omitempty"`
	// Environment holds the system variables that we set or removed, by variable name in lower case.
	Environment map[string]Variable `json:"environment,omitempty"`
	// Certificates are the CA certificates (DER) that we added to the root store.
	Certificates [][]byte `json:"certificates,omitempty"`
	// Directories are the directories that we created, parents first.
	Directories Names `json:"directories,omitempty"`
	Files       Names `json:"files,omitempty"`
	// Staged lists files whose new content is in a temporary file next to them. A crash may leave this temporary file.
	Staged Names `json:"staged,omitempty"`
	// Aside lists the new names of programs that were renamed to make room for a new version. Such a program may still
	// be running. When the program no longer runs, its file is deleted.
	Aside    Names            `json:"aside,omitempty"`
	Services map[string]Start `json:"services,omitempty"`
	// Interrupted lists services of other vendors that we stopped because they depend on our services. The next pass
	// starts them again, in this order.
	Interrupted Names `json:"interrupted,omitempty"`
	// Routes lists the IP addresses that we added a route for.
	Routes Names `json:"routes,omitempty"`
	// Networks lists the HNS networks that exist for the current revision and earlier revisions.
	Networks Names `json:"networks,omitempty"`
}

// Revision is one desired state.
type Revision struct {
	Name     string            `json:"revision,omitempty"`
	Manifest contract.Manifest `json:"manifest"`
	// Confidential is the manifest's confidential part in its published form, or empty: see contract.ParseConfidential.
	Confidential []byte `json:"confidential,omitempty"`
	// Data is the data of the manifest's ConfigMap, if the daemon that stored it could not parse all of it. The next
	// daemon parses the manifest from Data.
	Data map[string]string `json:"data,omitempty"`
}

// FailedRevision is a desired state that failed.
type FailedRevision struct {
	Name    string            `json:"revision"`
	Problem *contract.Problem `json:"problem"`
	// Pause is the delay before the next attempt, which may start at Until.
	Pause time.Duration `json:"pause"`
	Until time.Time     `json:"until"`
}

// Update is the trial of a new program of the daemon.
type Update struct {
	// Program is the digest of the new program.
	Program string `json:"program"`
	// Starts counts the starts of the program. The program must be accepted before Deadline, which is zero before the
	// first start.
	Starts   int       `json:"starts,omitempty"`
	Deadline time.Time `json:"deadline,omitzero"`
}

// Variable is a system environment variable that we changed.
type Variable struct {
	Name string `json:"name"`
	// Before is the variable's value before our first change, or nil if it was unset.
	Before *string `json:"before,omitempty"`
	// If the service manager did not know the variable when we set it, SetIn is the ID of the boot at that time. If we
	// deleted the variable, RemovedIn is the ID of the boot of the deletion. The service manager reads all variables at
	// boot, and passes them to services until the next boot.
	SetIn     string `json:"setIn,omitempty"`
	RemovedIn string `json:"removedIn,omitempty"`
}

// IsInherited reports whether the service manager still passes a deleted variable to services during this boot.
func (v Variable) IsInherited(boot string) bool {
	return v.SetIn != boot && (v.RemovedIn == "" || v.RemovedIn == boot)
}

// Start records our last start of a service.
type Start struct {
	// Inputs is the digest of the command, environment and files that the service started with.
	Inputs string `json:"inputs,omitempty"`
	// NotPID is the ID of the process that ran when this entry was written, just before the restart. That process has
	// older inputs. If the service now has another process, the restart happened, and the process has the inputs of
	// this entry. If the service still has this process, a crash prevented the restart.
	NotPID uint32 `json:"notPID,omitempty"`
}

// File is the state together with its file. Only one goroutine of one process may use it at a time.
type File struct {
	State
	files   winos.Files
	written []byte
}

// Read loads the state file. If the file is missing or damaged, the state is empty.
func Read(files winos.Files) (*File, error) {
	f := &File{files: files}
	content, err := winos.ReadFile(files, contract.PathState)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state file: %w", err)
	}
	if err = json.Unmarshal(content, &f.State); err != nil {
		return &File{files: files}, nil //nolint:nilerr // treat a damaged file like a lost one
	}
	f.written = content
	return f, nil
}

// Exists reports whether the host has a state file that is not damaged.
func (f *File) Exists() bool { return f.written != nil }

// Save writes the state file if the state has changed, or if the file was deleted. If the state is empty and there was
// no file, Save writes nothing.
func (f *File) Save() error {
	if !f.Exists() && reflect.DeepEqual(f.State, State{}) {
		return nil
	}
	content, err := json.MarshalIndent(f.State, "", " ")
	if err != nil {
		return fmt.Errorf("encoding the state file: %w", err)
	}
	if bytes.Equal(content, f.written) {
		if there, err := winos.Exists(f.files, contract.PathState); there || err != nil {
			return nil //nolint:nilerr // a file that can't be read was not deleted
		}
	}
	if err = winos.WriteFile(f.files, contract.PathState, bytes.NewReader(content),
		winos.AccessAdministrators); err != nil {
		return fmt.Errorf("writing the state file: %w", err)
	}
	f.written = content
	return nil
}

// Tidy deletes the temporary file of an interrupted write. Only the process that owns the state file may call it.
func (f *File) Tidy() error {
	if err := f.files.Remove(contract.PathState + ".tmp"); err != nil {
		return fmt.Errorf("removing old files next to the state file: %w", err)
	}
	return nil
}

// Change calls `change` and then saves the state. If either fails, the state in memory is as before the call. Earlier
// changes that could not be saved stay in memory, and the next save writes them.
func (f *File) Change(change func() error) error {
	before := f.State
	before.Services, before.Environment = maps.Clone(f.Services), maps.Clone(f.Environment)
	err := change()
	if err == nil {
		err = f.Save()
	}
	if err != nil {
		f.State = before
	}
	return err
}

// Erase deletes the file and the state.
func (f *File) Erase() error {
	f.State, f.written = State{}, nil
	if err := f.files.Remove(contract.PathState); err != nil {
		return fmt.Errorf("removing the state file: %w", err)
	}
	return nil
}

// Back restores the revision in `Before` as the desired state, and marks it as verified. `Before` must not be nil.
func (s *State) Back() {
	s.Revision, s.Before, s.Verified = *s.Before, nil, true
}

// Fail records that a revision failed, and the problem in `why`. The host stays at the current revision. The failed
// revision isn't retried before the time that until(pause) returns. The pause is `first`. If the same revision has
// failed before, the pause is twice the previous pause, but at most limit.
func (s *State) Fail(revision string, why *contract.Problem, first, limit time.Duration,
	until func(pause time.Duration) time.Time) {
	pause := first
	if last := s.Failed; last != nil && last.Name == revision {
		pause = max(min(2*last.Pause, limit), first)
	}
	s.Failed = &FailedRevision{
		Name: revision, Pause: pause, Until: until(pause),
		Problem: s.HeldInstead(revision, why),
	}
}

// HeldInstead returns the problem `why` with the names of the failed revision and the revision that the host keeps.
func (s *State) HeldInstead(of string, why *contract.Problem) *contract.Problem {
	return contract.NewProblem(why.Reason, "%s%s; the host is held at %s", contract.AboutRevision(of), why.Detail,
		s.Revision.Name)
}

// AddCertificate records a root certificate before we add it.
func (s *State) AddCertificate(der []byte) {
	if !s.Added(der) {
		s.Certificates = append(s.Certificates, der)
	}
}

// RemoveCertificate deletes the record of a root certificate.
func (s *State) RemoveCertificate(der []byte) {
	s.Certificates = slices.DeleteFunc(s.Certificates, func(other []byte) bool { return bytes.Equal(other, der) })
}

// Added reports whether we added a root certificate.
func (s *State) Added(der []byte) bool {
	return slices.ContainsFunc(s.Certificates, func(other []byte) bool { return bytes.Equal(other, der) })
}

// TouchVariable records a system variable's value before our first change. Later calls don't change the record.
func (s *State) TouchVariable(name string, before *string) {
	if s.Environment == nil {
		s.Environment = map[string]Variable{}
	}
	if _, known := s.Environment[strings.ToLower(name)]; !known {
		s.Environment[strings.ToLower(name)] = Variable{Name: name, Before: before}
	}
}

// NoteVariable records that we set a variable (if `set` is true) or deleted it in the boot with this ID.
func (s *State) NoteVariable(name, boot string, set bool) {
	v := s.Environment[strings.ToLower(name)]
	gone := v.RemovedIn != "" && v.RemovedIn != boot
	switch {
	case !set:
		v.RemovedIn = boot
	case gone || v.RemovedIn == "" && v.SetIn == "" && v.Before == nil:
		v.SetIn, v.RemovedIn = boot, ""
	default:
		v.RemovedIn = ""
	}
	s.Environment[strings.ToLower(name)] = v
}

// SetService records the inputs of a service. Call it before the service starts.
func (s *State) SetService(name string, start Start) {
	if s.Services == nil {
		s.Services = map[string]Start{}
	}
	s.Services[name] = start
}

// Installed reports whether we installed a service.
func (s *State) Installed(name string) bool {
	for service := range s.Services {
		if strings.EqualFold(service, name) {
			return true
		}
	}
	return false
}

// Names is a list of paths or names on Windows, which ignores their case. A name is added before we change the object,
// and removed after the object is restored. If the change doesn't happen after all, the name does no harm.
type Names []string

// Has reports whether the list contains a name.
func (n Names) Has(name string) bool {
	return slices.ContainsFunc(n, func(other string) bool { return strings.EqualFold(other, name) })
}

// Add adds a name.
func (n *Names) Add(name string) {
	if !n.Has(name) {
		*n = append(*n, name)
	}
}

// Remove removes a name.
func (n *Names) Remove(name string) {
	*n = slices.DeleteFunc(*n, func(other string) bool { return strings.EqualFold(other, name) })
}

// Reboots counts the reboots that were needed to prepare the host.
type Reboots struct {
	Count int `json:"count"`
	// BootID and Time are the boot ID and the time when the last reboot was requested.
	BootID string    `json:"bootID"`
	Time   time.Time `json:"time"`
}
