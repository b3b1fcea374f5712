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
	// NodeName is the name of this host's Node. It is set when bootstrap has determined it.
	NodeName string `json:"nodeName,omitempty"`
	// NodeIP is the node's address in its instance. If it is empty, the default route's address applies.
	NodeIP string `json:"nodeIP,omitempty"`
	// LastIP is the default route's address that the node has, if its instance sets none. The node keeps it
	// while the host has it.
	LastIP string `json:"lastIP,omitempty"`
	// SourceVIP is the last address of kube-proxy's endpoint. A reboot deletes the endpoint, but kube-proxy's
	// configuration still has the address, so the next endpoint gets the same address.
	SourceVIP string `json:"sourceVIP,omitempty"`
	// Revision is the desired state.
	Revision
	// Failed is the last revision that failed. No daemon retries it before the end of its pause.
	Failed *FailedRevision `json:"failed,omitempty"`
	// Verified reports that the desired state has held completely. Before that, the host returns to Before if the
	// desired state fails.
	Verified bool `json:"verified,omitempty"`
	// Before is the previous desired state that held. Its payload stays on the host.
	Before *Revision `json:"before,omitempty"`
	// Update is the trial of the daemon's new program, until this program is accepted or the previous program is
	// restored.
	Update *Update `json:"update,omitempty"`
	// Faults are the failures of the last pass outside of a trial that would make a revision fail. They include
	// services that didn't stay up. If the next revision fails in the same way, it isn't that revision's fault.
	Faults []Fault `json:"faults,omitempty"`
	// NodeValues are the Node's values for the manifest's JSONPaths. With them, services start without the
	// API server.
	NodeValues map[string]string `json:"nodeValues,omitempty"`
	// HostValues are facts from the cloud. The state file keeps them, because the cloud isn't always reachable. They
	// don't change during the life of a machine.
	HostValues map[contract.Fact]string `json:"hostValues,omitempty"`

	// RPCDir is the RPC directory of the user with whom the host was joined.
	RPCDir string `json:"rpcDir,omitempty"`

	Changes
}

// Changes are the changes to the host for its node. The cleanup reverts them.
type Changes struct {
	// HostnameBefore and HostnameSet are set if prepare renamed the host.
	HostnameBefore string `json:"hostnameBefore,omitempty"`
	HostnameSet    string `json:"hostnameSet,omitempty"`
	// Reboots are the reboots that prepare has requested.
	Reboots *Reboots `json:"reboots,omitempty"`
	// Features are Windows features that prepare enabled.
	Features []string `json:"features,omitempty"`
	// Environment holds the system variables that we set or removed, by lower-case name.
	Environment map[string]Variable `json:"environment,omitempty"`
	// Certificates are roots that we added, in DER.
	Certificates [][]byte `json:"certificates,omitempty"`
	// Directories are the directories that we created, parents first.
	Directories Names `json:"directories,omitempty"`
	// Files are the managed files that we wrote.
	Files Names `json:"files,omitempty"`
	// Staged are managed files with staged content next to them. After a crash, the staged content is
	// deleted.
	Staged Names `json:"staged,omitempty"`
	// Aside are running programs that were renamed to make room for a new version. They are deleted when they
	// no longer run.
	Aside Names `json:"aside,omitempty"`
	// Services are the services that we installed.
	Services map[string]Start `json:"services,omitempty"`
	// Interrupted are other vendors' services that stop together with a managed service, in the order of
	// their starts. They are started again.
	Interrupted Names `json:"interrupted,omitempty"`
	// Routes are the single addresses that we added routes for.
	Routes Names `json:"routes,omitempty"`
	// Networks are the names of the HNS networks of revisions, until the networks are deleted.
	Networks Names `json:"networks,omitempty"`
}

// Revision is one desired state.
type Revision struct {
	Name     string            `json:"revision,omitempty"`
	Manifest contract.Manifest `json:"manifest"`
	// Confidential is the confidential part of the manifest, as it is published: see contract.ParseConfidential. It is
	// empty if the manifest has none.
	Confidential []byte `json:"confidential,omitempty"`
	// Data is the data of the manifest's ConfigMap, if the daemon that stored it did not understand all of it. The
	// next daemon reads the manifest from Data.
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
	// Starts counts the starts of the program. Deadline is when the program must have been accepted. It is zero before
	// the first start.
	Starts   int       `json:"starts,omitempty"`
	Deadline time.Time `json:"deadline,omitzero"`
}

// Variable is a system environment variable that we changed.
type Variable struct {
	Name string `json:"name"`
	// Before is the variable's value before our first change, or nil if it was unset.
	Before *string `json:"before,omitempty"`
	// SetIn is the boot in which we set the variable, if the service manager didn't have the variable. RemovedIn is the
	// boot in which we deleted it. The service manager keeps the variables of its boot and passes them to services.
	SetIn     string `json:"setIn,omitempty"`
	RemovedIn string `json:"removedIn,omitempty"`
}

// IsInherited reports whether the service manager still passes a deleted variable to services.
func (v Variable) IsInherited(boot string) bool {
	return v.SetIn != boot && (v.RemovedIn == "" || v.RemovedIn == boot)
}

// Start records the inputs of a service's last start.
type Start struct {
	// Inputs is the digest of the command, environment and files of the last start by us.
	Inputs string `json:"inputs,omitempty"`
	// NotPID is the process that ran when Inputs was written, just before the restart. If the service now has another
	// process, that process was started later and has these inputs. So this entry, which is written before the
	// restart, shows whether the restart happened or a crash prevented it.
	NotPID uint32 `json:"notPID,omitempty"`
}

// File is the state together with its file. It is not safe for concurrent use: only one goroutine of one
// process may use it at a time.
type File struct {
	State
	files winos.Files
	// written is the content of the file.
	written []byte
}

// Read reads the state file. Without a file, or if the file is damaged, the state is empty.
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

// Save writes the state file if its content has changed or someone has deleted it. An empty state without a
// file is not written.
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

// Tidy deletes the remains of an interrupted write. Only the sole user of the state file may call it.
func (f *File) Tidy() error {
	if err := f.files.Remove(contract.PathState + ".tmp"); err != nil {
		return fmt.Errorf("removing old files next to the state file: %w", err)
	}
	return nil
}

// Change makes a change and saves it. If either fails, the change is undone. Earlier changes that could not
// be saved stay in memory, for the next write.
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

// Back restores the previous desired state, which must exist.
func (s *State) Back() {
	s.Revision, s.Before, s.Verified = *s.Before, nil, true
}

// Fail records why a revision failed, in the operator's reasons. The host stays at the current revision. The
// failed revision isn't retried before until(pause). The pause is first, or twice the previous pause if the
// revision failed before, up to limit.
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

// HeldInstead returns the problem of a failed revision: its reason and detail, and the revision that the host keeps.
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

// RemoveCertificate removes a root certificate's record.
func (s *State) RemoveCertificate(der []byte) {
	s.Certificates = slices.DeleteFunc(s.Certificates, func(other []byte) bool { return bytes.Equal(other, der) })
}

// Added reports whether we added a root certificate.
func (s *State) Added(der []byte) bool {
	return slices.ContainsFunc(s.Certificates, func(other []byte) bool { return bytes.Equal(other, der) })
}

// TouchVariable records the value of a system variable before our first change. Later calls don't change the
// record.
func (s *State) TouchVariable(name string, before *string) {
	if s.Environment == nil {
		s.Environment = map[string]Variable{}
	}
	if _, known := s.Environment[strings.ToLower(name)]; !known {
		s.Environment[strings.ToLower(name)] = Variable{Name: name, Before: before}
	}
}

// NoteVariable records that a variable was set or deleted in this boot.
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

// SetService records the inputs of a service before it starts.
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
// and removed after the object is restored. An unused name is harmless.
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

// Reboots counts the reboots of the host's preparation.
type Reboots struct {
	Count int `json:"count"`
	// BootID is the boot in which the last reboot was requested, at Time.
	BootID string    `json:"bootID"`
	Time   time.Time `json:"time"`
}
