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

// State is what is written down. The zero value is that of a host that we never touched.
type State struct {
	// NodeName is this host's node, once bootstrap knows it.
	NodeName string `json:"nodeName,omitempty"`
	// NodeIP is the node's address as its instance says; empty for that of the default route.
	NodeIP string `json:"nodeIP,omitempty"`
	// LastIP is the address of the default route that the node has got, where its instance says none. It keeps it for
	// as long as the host has it.
	LastIP string `json:"lastIP,omitempty"`
	// SourceVIP is the last address of kube-proxy's endpoint. The endpoint ends with the boot, and
	// kube-proxy's configuration still has the address, so the next endpoint gets it again.
	SourceVIP string `json:"sourceVIP,omitempty"`
	// Revision is what the host is brought to, or held at. If it is partial, the daemon that wrote it down did not
	// understand all of the manifest. Another daemon must read it again.
	Revision
	// Failed is the revision that could not be had last, and is not to be tried again too soon, by
	// whichever daemon.
	Failed *FailedRevision `json:"failed,omitempty"`
	// Verified says that this desired state has held completely. Until then the host goes back to
	// Before when it can't be had.
	Verified bool `json:"verified,omitempty"`
	// Before is the last desired state that held, other than the present one. Its payload stays on the host.
	Before *Revision `json:"before,omitempty"`
	// Update is the trial of the daemon's new program, until that is accepted or the previous program is restored.
	Update *Update `json:"update,omitempty"`
	// Faults are what failed in the last pass at a revision that was not on trial, as far as it would
	// have that one given up, and the services that did not stay up: what fails in the same way with
	// the next revision is no fault of that.
	Faults []Fault `json:"faults,omitempty"`
	// Extra are managed files that no manifest lists, because they come with bootstrap: CA bundles.
	Extra []contract.File `json:"extra,omitempty"`
	// NodeValues are the values that JSONPaths of the manifest had on the Node, so that services
	// start without the API server.
	NodeValues map[string]string `json:"nodeValues,omitempty"`
	// HostValues are facts that the cloud told. They stay the same for the life of a machine, and
	// the cloud can't always be asked.
	HostValues map[contract.Fact]string `json:"hostValues,omitempty"`

	// RPCDir is the RPC directory of the user over whose connection the host was joined.
	RPCDir string `json:"rpcDir,omitempty"`

	Changes
}

// Changes is what was changed on the host for its node, and so what cleaning up reverts.
type Changes struct {
	// Lost says that this state file was begun anew on a host of ours, without what the one before said.
	// What was there before us is not known then: what lies in directories of ours counts as ours, and
	// files and variables that the first revision since wants and finds in place.
	Lost bool `json:"lost,omitempty"`
	// HostnameBefore and HostnameSet are there when prepare renamed the host.
	HostnameBefore string `json:"hostnameBefore,omitempty"`
	HostnameSet    string `json:"hostnameSet,omitempty"`
	// Reboots are those that prepare has asked for so far.
	Reboots *Reboots `json:"reboots,omitempty"`
	// Features are Windows features that prepare switched on.
	Features []string `json:"features,omitempty"`
	// Environment holds the system variables that we set or removed, by lower-case name.
	Environment map[string]Variable `json:"environment,omitempty"`
	// Certificates are roots that we added, in DER.
	Certificates [][]byte `json:"certificates,omitempty"`
	// Directories are those that we made, parents first.
	Directories []string `json:"directories,omitempty"`
	// Files are the managed files that we wrote.
	Files []string `json:"files,omitempty"`
	// Staged are managed files whose next content lies beside them. After a crash it is of no use.
	Staged []string `json:"staged,omitempty"`
	// Aside are running programs that were moved out of the way of a new version; they are removed
	// when nothing runs them any more.
	Aside []string `json:"aside,omitempty"`
	// Services are the services that we installed.
	Services map[string]Start `json:"services,omitempty"`
	// Interrupted are running services of others that are stopped with one of ours that they need, those that need
	// others of them last. They are started again.
	Interrupted []string `json:"interrupted,omitempty"`
	// Routes are single addresses to which we added routes.
	Routes []string `json:"routes,omitempty"`
	// Networks are the HNS networks that revisions had pods on, by name, until they are removed.
	Networks []string `json:"networks,omitempty"`
}

// Revision is one desired state.
type Revision struct {
	Name     string            `json:"revision,omitempty"`
	Manifest contract.Manifest `json:"manifest"`
	// Confidential is the confidential part of the manifest, as contract.PackConfidential returns it. It is empty if
	// the manifest names none, and while it is not known. State files of older daemons don't have it.
	Confidential []byte `json:"confidential,omitempty"`
	// Partial says that this is not all of what was published: see State.
	Partial bool `json:"partial,omitempty"`
}

// ParseConfidential reads the confidential part. If the manifest names none, the part is empty. If the part is not
// known, or does not belong to the manifest, the error is a *Problem with ReasonManifestInvalid.
func (r *Revision) ParseConfidential() (contract.Confidential, error) {
	if r.Manifest.Confidential == "" {
		return contract.Confidential{}, nil
	}
	data, err := contract.UnpackConfidential(r.Confidential)
	if err != nil {
		return contract.Confidential{}, err
	}
	return contract.ParseConfidential(data, r.Manifest)
}

// FailedRevision is a desired state that could not be had.
type FailedRevision struct {
	Name    string            `json:"revision"`
	Problem *contract.Problem `json:"problem"`
	// Pause lies before the next attempt, which is due at Until.
	Pause time.Duration `json:"pause"`
	Until time.Time     `json:"until"`
}

// Update is the trial of a new program of the daemon.
type Update struct {
	// Program is the digest of the new program.
	Program string `json:"program"`
	// Starts counts its starts. Deadline is when it must have been accepted; zero before its first start.
	Starts   int       `json:"starts,omitempty"`
	Deadline time.Time `json:"deadline,omitzero"`
}

// Variable is a system environment variable of ours.
type Variable struct {
	Name string `json:"name"`
	// Before is its value before we first touched it; nil when it was not set.
	Before *string `json:"before,omitempty"`
	// SetIn is the boot in which we set it when the service manager did not have it, RemovedIn the
	// one in which we removed it. The service manager hands on what was there at its boot.
	SetIn     string `json:"setIn,omitempty"`
	RemovedIn string `json:"removedIn,omitempty"`
}

// IsInherited reports whether services get a variable that is removed, or about to be, from the
// service manager nevertheless.
func (v Variable) IsInherited(boot string) bool {
	return !contract.SameBoot(v.SetIn, boot) && (v.RemovedIn == "" || contract.SameBoot(v.RemovedIn, boot))
}

// Start tells with what a service runs.
type Start struct {
	// Inputs is the digest of command, environment and files for which the service was last started
	// by us.
	Inputs string `json:"inputs,omitempty"`
	// NotPID is the process that ran when Inputs was written, right before the restart. Any other
	// process has been started since then, so it has these inputs. That is how one entry, written
	// ahead, tells a restart that happened from one that a crash prevented.
	NotPID uint32 `json:"notPID,omitempty"`
}

// File is the state file in its file. It is not for concurrent use: one process and one goroutine
// at a time keep it.
type File struct {
	State
	files winos.Files
	// written is what the file holds.
	written []byte
}

// PathDamaged is where a state file lies that could not be understood.
const PathDamaged = contract.PathState + ".bad"

// Read reads the state file; a host without one has an empty state. A file that can't be understood
// is kept beside it as evidence, and the state file starts anew: losing what was before is better
// than never working again.
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
		f.State = State{}
		if err = files.Rename(contract.PathState, PathDamaged); err != nil {
			return nil, fmt.Errorf("setting a damaged state file aside: %w", err)
		}
		return f, nil
	}
	f.written = content
	return f, nil
}

// Exists says whether there is a state file on this host.
func (f *File) Exists() bool { return f.written != nil }

// Save writes the state file if it differs from its file, or somebody has deleted that. An empty state that has no
// file gets none.
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
			return nil //nolint:nilerr // what can't be looked at was not deleted
		}
	}
	if err = winos.WriteFile(f.files, contract.PathState, bytes.NewReader(content),
		winos.AccessAdministrators); err != nil {
		return fmt.Errorf("writing the state file: %w", err)
	}
	f.written = content
	return nil
}

// Tidy removes what a write that was cut short left. Only who keeps the state file alone may call
// it.
func (f *File) Tidy() error {
	if err := f.files.Remove(contract.PathState + ".tmp"); err != nil {
		return fmt.Errorf("tidying up beside the state file: %w", err)
	}
	return nil
}

// Change makes a change and writes it. If either fails, this change is undone; what was changed
// before it and could not be written stays, and goes with the next write.
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

// Erase removes the file and forgets everything.
func (f *File) Erase() error {
	f.State, f.written = State{}, nil
	if err := f.files.Remove(contract.PathState); err != nil {
		return fmt.Errorf("removing the state file: %w", err)
	}
	return nil
}

// Back makes the desired state that held before the present one again. There must be one.
func (s *State) Back() {
	s.Revision, s.Before, s.Verified = *s.Before, nil, true
}

// Fail notes why a revision could not be had, in words that the operator knows; the present one is
// where the host is held. It is not tried again before until, after a pause: the first, or, when it failed before, one
// twice as long as that was, up to a limit.
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

// HeldInstead is why a revision could not be had, in words that the operator knows: it says where the host is held.
func (s *State) HeldInstead(of string, why *contract.Problem) *contract.Problem {
	return contract.NewProblem(why.Reason, "%s%s; the host is held at %s", contract.AboutRevision(of), why.Detail,
		s.Revision.Name)
}

// Made says whether we made this directory.
func (s *State) Made(dir string) bool { return contains(s.Directories, dir) }

// AddDirectory notes a directory that we are about to make.
func (s *State) AddDirectory(dir string) { s.Directories = add(s.Directories, dir) }

// AddFile notes a file that we are about to write.
func (s *State) AddFile(path string) { s.Files = add(s.Files, path) }

// AddStaged notes a file whose next content is about to lie beside it.
func (s *State) AddStaged(path string) { s.Staged = add(s.Staged, path) }

// AddAside notes where a running program may be moved; that nothing gets there does no harm.
func (s *State) AddAside(path string) { s.Aside = add(s.Aside, path) }

// RemoveFile forgets a file.
func (s *State) RemoveFile(path string) {
	s.Files = slices.DeleteFunc(s.Files, func(f string) bool { return strings.EqualFold(f, path) })
}

// AddCertificate notes a root that we are about to add.
func (s *State) AddCertificate(der []byte) {
	if !s.Added(der) {
		s.Certificates = append(s.Certificates, der)
	}
}

// RemoveCertificate forgets a root.
func (s *State) RemoveCertificate(der []byte) {
	s.Certificates = slices.DeleteFunc(s.Certificates, func(other []byte) bool { return bytes.Equal(other, der) })
}

// Added says whether a root is one of ours.
func (s *State) Added(der []byte) bool {
	return slices.ContainsFunc(s.Certificates, func(other []byte) bool { return bytes.Equal(other, der) })
}

// AddInterrupted notes a service of others that is about to be stopped.
func (s *State) AddInterrupted(name string) { s.Interrupted = add(s.Interrupted, name) }

// AddRoute notes an address to which we are about to add a route.
func (s *State) AddRoute(to string) { s.Routes = add(s.Routes, to) }

// AddNetwork notes the HNS network that pods are about to be on.
func (s *State) AddNetwork(name string) { s.Networks = add(s.Networks, name) }

// RemoveDirectory forgets a directory.
func (s *State) RemoveDirectory(dir string) {
	s.Directories = slices.DeleteFunc(s.Directories, func(d string) bool { return strings.EqualFold(d, dir) })
}

// TouchVariable notes the value of a system variable before our first change of it; later changes
// of ours don't count.
func (s *State) TouchVariable(name string, before *string) {
	if s.Environment == nil {
		s.Environment = map[string]Variable{}
	}
	if _, known := s.Environment[strings.ToLower(name)]; !known {
		s.Environment[strings.ToLower(name)] = Variable{Name: name, Before: before}
	}
}

// AdoptVariable has a system variable that is there count as ours, unless it does already. The service
// manager may have it from its boot.
func (s *State) AdoptVariable(name string) {
	key := strings.ToLower(name)
	if _, known := s.Environment[key]; known {
		return
	}
	s.TouchVariable(name, nil)
	s.Environment[key] = Variable{Name: name, SetIn: "an earlier boot"}
}

// NoteVariable notes in which boot a touched variable is set or removed.
func (s *State) NoteVariable(name, boot string, set bool) {
	v := s.Environment[strings.ToLower(name)]
	gone := v.RemovedIn != "" && !contract.SameBoot(v.RemovedIn, boot)
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

// SetService notes with what a service is about to run.
func (s *State) SetService(name string, start Start) {
	if s.Services == nil {
		s.Services = map[string]Start{}
	}
	s.Services[name] = start
}

// Installed says whether a service is one of ours.
func (s *State) Installed(name string) bool {
	for service := range s.Services {
		if strings.EqualFold(service, name) {
			return true
		}
	}
	return false
}

func contains(list []string, path string) bool {
	return slices.ContainsFunc(list, func(other string) bool { return strings.EqualFold(other, path) })
}

func add(list []string, path string) []string {
	if contains(list, path) {
		return list
	}
	return append(list, path)
}

// Reboots counts reboots for the host's preparation.
type Reboots struct {
	Count int `json:"count"`
	// BootID is the boot in which the last one was asked for, at Time.
	BootID string    `json:"bootID"`
	Time   time.Time `json:"time"`
}
