package apply_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// host is a machine with a state file and a manifest of two services.
type host struct {
	*sim.Machine
	state *state.File
}

func newHost(t *testing.T) *host {
	t.Helper()
	m, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	stateFile, err := state.Open(m.Host().Files)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{m, stateFile}
	h.want(t, "one", "one")
	return h
}

// want sets the manifest with these versions of the runtime and of kubelet, and stores the payload.
func (h *host) want(t *testing.T, runtime, kubelet string) {
	t.Helper()
	h.state.Manifest = contract.Manifest{
		Services: []contract.Service{
			{Name: "containerd", Command: contract.PathContainerd, Bootstrap: true},
			{Name: "kubelet", Command: contract.PathKubelet, Bootstrap: true, Priority: 1,
				Dependencies: []string{"containerd"}},
		},
		Files: []contract.File{h.program(t, contract.PathContainerd, "MZ runtime "+runtime, "containerd"),
			h.program(t, contract.PathKubelet, "MZ kubelet "+kubelet, "kubelet")},
	}
	if err := h.state.Manifest.Validate(); err != nil {
		t.Fatal(err)
	}
}

func (h *host) program(t *testing.T, path, content, service string) contract.File {
	t.Helper()
	digest := digestOf(content)
	files := h.Host().Files
	if err := files.MkdirAll(contract.DirStore, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	if err := winos.WriteFile(files, contract.DirStore+`\`+digest, strings.NewReader(content),
		winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	return contract.File{Path: path, Digest: digest, Size: int64(len(content)), Services: []string{service}}
}

func (h *host) applier() *apply.Applier {
	return apply.New(apply.Options{Host: h.Host(), State: h.state})
}

func (h *host) pass(t *testing.T, a *apply.Applier) apply.Report {
	t.Helper()
	return a.Apply(t.Context(), apply.Request{Revision: h.state.Revision, Scope: plan.Everything})
}

// confide adds a confidential part to the host's manifest.
func (h *host) confide(t *testing.T, c contract.Confidential) {
	t.Helper()
	c.Salt = []byte("0123456789abcdef")
	packed, digest, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	h.state.Manifest.Confidential, h.state.Confidential = digest, packed
}

func (h *host) get(t *testing.T, name string) winos.Service {
	t.Helper()
	s, err := h.Host().Services.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (h *host) read(t *testing.T, path string) string {
	t.Helper()
	content, err := winos.ReadFile(h.Host().Files, path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestASecondPassHasNothingToDo(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	a := h.applier()
	if r := h.pass(t, a); !r.Holds() || len(r.Steps) == 0 {
		t.Fatalf("the first pass: %+v", r)
	}
	for range 2 {
		if r := h.pass(t, a); !r.Holds() || len(r.Steps) > 0 {
			t.Errorf("a later pass: %+v", r)
		}
	}
	if a.QuickCheck(t.Context()) {
		t.Error("a quick check finds a change")
	}
	if r := h.pass(t, h.applier()); len(r.Steps) > 0 {
		t.Errorf("after a restart of the daemon: %+v", r)
	}
}

func TestANewProgramIsPutInPlaceWhileTheOldOneRuns(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	a := h.applier()
	h.pass(t, a)
	runtime, kubelet := h.get(t, "containerd").PID, h.get(t, "kubelet").PID
	h.want(t, "one", "two")
	if r := h.pass(t, a); !r.Holds() {
		t.Fatalf("got %+v", r)
	}
	if h.read(t, contract.PathKubelet) != "MZ kubelet two" {
		t.Error("the program was not replaced")
	}
	if h.get(t, "kubelet").PID == kubelet {
		t.Error("kubelet still runs the old program")
	}
	if h.get(t, "containerd").PID != runtime {
		t.Error("containerd was restarted without a change")
	}
	entries, err := h.Host().Files.List(contract.DirK)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name, ".old-") || strings.HasSuffix(e.Name, ".tmp") {
			t.Errorf("%s is left", e.Name)
		}
	}
}

// unstoppable is a service manager that can't stop services.
type unstoppable struct{ winos.Services }

func (unstoppable) Stop(context.Context, string) error { return winos.ErrInUse }

// A program was replaced, but its service could not be restarted. Something else may have restarted the service since.
// So until the daemon starts the service again, it must not assume that the process has the recorded inputs.
func TestWhatAServiceRunsWithIsForgottenOnceItsProgramIsReplaced(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.pass(t, h.applier())
	if h.state.Services["kubelet"] == (state.Start{}) {
		t.Fatal("the inputs of the running kubelet are unknown")
	}
	h.want(t, "one", "two")
	machine := h.Host()
	machine.Services = unstoppable{machine.Services}
	r := h.pass(t, apply.New(apply.Options{Host: machine, State: h.state}))
	if r.Holds() || h.read(t, contract.PathKubelet) != "MZ kubelet two" {
		t.Fatalf("got %+v", r)
	}
	if start := h.state.Services["kubelet"]; start != (state.Start{}) {
		t.Errorf("the state file has the start %+v of kubelet", start)
	}
}

func TestARevisionIsNotGivenUpForAProgramThatAScannerReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		a := h.applier()
		h.pass(t, a)
		h.want(t, "one", "two")
		reader, err := h.Host().Files.Open(contract.PathKubelet)
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		time.AfterFunc(50*time.Millisecond, func() { closed <- reader.Close() })
		r := a.Apply(t.Context(), apply.Request{Revision: h.state.Revision, Scope: plan.Everything, Whole: true})
		if err = <-closed; err != nil {
			t.Fatal(err)
		}
		if !r.Holds() || h.read(t, contract.PathKubelet) != "MZ kubelet two" {
			t.Errorf("got %+v", r)
		}
	})
}

func TestAFailureKeepsBackOnlyWhatNeedsIt(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	a := h.applier()
	h.pass(t, a)
	runtime, kubelet := h.get(t, "containerd").PID, h.get(t, "kubelet").PID
	h.want(t, "two", "two")
	blob := h.state.Manifest.Files[0].Digest
	if err := h.Host().Files.Remove(contract.DirStore + `\` + blob); err != nil {
		t.Fatal(err)
	}
	r := h.pass(t, a)
	if p := r.Problem(); p == nil || p.Reason != contract.ReasonPayloadIncomplete {
		t.Errorf("got %v", p)
	}
	if h.get(t, "containerd").PID != runtime || h.get(t, "kubelet").PID != kubelet {
		t.Error("services were stopped although the new version can't be started")
	}
	h.want(t, "two", "two")
	if r = h.pass(t, a); !r.Holds() {
		t.Errorf("after the blob arrived: %+v", r)
	}
	if h.get(t, "containerd").PID == runtime || h.get(t, "kubelet").PID == kubelet ||
		h.read(t, contract.PathContainerd) != "MZ runtime two" {
		t.Error("the new version does not run")
	}
}

func TestAServiceThatDoesNotStartIsNamed(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.FailService("containerd", true)
	a := h.applier()
	r := h.pass(t, a)
	if p := r.Problem(); p == nil || p.Reason != contract.ReasonServiceFailed ||
		!strings.Contains(p.Detail, "containerd") {
		t.Errorf("got %v", p)
	}
	if len(r.Failed) != 1 {
		t.Errorf("services that depend on it failed as well: %v", r.Failed)
	}
	h.FailService("containerd", false)
	if r = h.pass(t, a); !r.Holds() {
		t.Errorf("mended: %+v", r)
	}
}

func TestAServiceOfSomebodyElseIsAConflict(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	theirs := winos.ServiceConfig{Name: "containerd", Description: "Docker's", Command: `C:\docker\containerd.exe`}
	if err := h.Host().Services.Apply(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	r := h.pass(t, h.applier())
	if p := r.Problem(); p == nil || p.Reason != contract.ReasonConflictingSoftware {
		t.Errorf("got %v", p)
	}
	if s := h.get(t, "containerd"); s.Command != theirs.Command {
		t.Error("the foreign service was overwritten")
	}
}

func TestWhoeverKeepsChangingThingsIsReported(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.state.Manifest.Files = append(h.state.Manifest.Files, contract.File{Path: `C:\k\x.conf`, Content: "right"})
	a := h.applier()
	for n := range 5 {
		if r := h.pass(t, a); r.Holds() != (n < 2) {
			t.Fatalf("pass %d: %v", n, r.Problem())
		}
		if right := h.read(t, `C:\k\x.conf`) == "right"; right != (n < 3) {
			t.Errorf("pass %d: repaired: %v", n, right)
		}
		if err := winos.WriteFile(h.Host().Files, `C:\k\x.conf`, strings.NewReader(strings.Repeat("w", n+1)),
			winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
	}
	if p := h.pass(t, a).Problem(); p == nil || p.Reason != contract.ReasonForeignInterference {
		t.Errorf("got %v", p)
	}
}

func TestWhatIsWantedAgainAndAgainIsNoFight(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	a, before := h.applier(), h.state.Manifest
	with := before
	with.Files = append(slices.Clone(before.Files), contract.File{Path: `C:\k\x.conf`, Content: "right"})
	with.EnvironmentVars = map[string]string{"HTTP_PROXY": "http://p:1"}
	for n := range 10 {
		h.state.Manifest = []contract.Manifest{with, before}[n%2]
		if r := h.pass(t, a); !r.Holds() {
			t.Fatalf("pass %d: %v", n, r.Problem())
		}
	}
}

func TestAFullDiskHasItsReason(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.SetDiskFree(0)
	if p := h.pass(t, h.applier()).Problem(); p == nil || p.Reason != contract.ReasonDiskFull {
		t.Errorf("got %v", p)
	}
}

func TestWhatCanNotBePreparedForDaysIsNotedOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	a := h.applier()
	h.pass(t, a)
	h.want(t, "one", "two")
	h.SetPathFault(contract.PathKubelet+".tmp", winos.ErrDenied)
	for range 5 {
		h.pass(t, a)
	}
	if len(h.state.Staged) != 1 {
		t.Errorf("the state file has %v", h.state.Staged)
	}
	h.SetPathFault(contract.PathKubelet+".tmp", nil)
	if r := h.pass(t, a); !r.Holds() || len(h.state.Staged) > 0 {
		t.Errorf("%v, and the state file has %v", r.Problem(), h.state.Staged)
	}
}

func TestAVariableThatWasThereIsPutBack(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	ctx, environment := t.Context(), h.Host().Environment
	if err := environment.Set(ctx, "Http_Proxy", "before"); err != nil {
		t.Fatal(err)
	}
	h.state.Manifest.EnvironmentVars = map[string]string{"HTTP_PROXY": "ours"}
	a := h.applier()
	h.pass(t, a)
	h.state.Manifest.EnvironmentVars = map[string]string{"HTTP_PROXY": "ours too"}
	h.pass(t, a)
	h.state.Manifest.EnvironmentVars = nil
	h.pass(t, a)
	all, err := environment.All(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range all {
		if strings.EqualFold(name, "HTTP_PROXY") && value != "before" {
			t.Errorf("%s is %q", name, value)
		}
	}
}

// watching is a file system that records all renames in order.
type watching struct {
	winos.Files
	renamed *[]string
}

func (w watching) Rename(from, to string) error {
	*w.renamed = append(*w.renamed, to)
	return w.Files.Rename(from, to)
}

func TestA26_CertificateAndKeyAreReplacedTogether(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.pass(t, h.applier())
	var renamed []string
	host := h.Host()
	host.Files = watching{host.Files, &renamed}
	stateFile, err := state.Read(host.Files)
	if err != nil {
		t.Fatal(err)
	}
	h.state.Manifest.Files = append(h.state.Manifest.Files, contract.File{Path: `C:\k\x.conf`, Content: "x"})
	h.confide(t, contract.Confidential{
		Files: []contract.File{{Path: `C:\k\tls\certs\tls.crt`, Content: "certificate"},
			{Path: `C:\k\tls\certs\tls.key`, Content: "key"}},
	})
	stateFile.Revision = h.state.Revision
	report := apply.New(apply.Options{Host: host, State: stateFile}).Apply(t.Context(),
		apply.Request{Revision: h.state.Revision, Scope: plan.Everything})
	if !report.Holds() {
		t.Fatal(report.Problem())
	}
	at := slices.Index(renamed, `C:\k\tls\certs\tls.crt`)
	if at < 0 || at+1 >= len(renamed) || renamed[at+1] != `C:\k\tls\certs\tls.key` {
		t.Errorf("there is another change between certificate and key: %v", renamed)
	}
}

func TestAStoreThatCanNotBeReadKeepsNothingElseBack(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	host := h.Host()
	host.Trust = locked{host.Trust}
	a := apply.New(apply.Options{Host: host, State: h.state})
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{0x30, 0x00}}))
	h.confide(t, contract.Confidential{Trust: []string{text}})
	r := h.pass(t, a)
	if p := r.Problem(); p == nil || p.Reason != contract.ReasonTrustFailed || len(r.Broken) > 0 {
		t.Errorf("%v, broken %v", p, r.Broken)
	}
	if s := h.get(t, "kubelet"); s.State != winos.ServiceRunning {
		t.Errorf("kubelet is %s", s.State)
	}
}

// locked is a root store that a policy protects.
type locked struct{ winos.Trust }

func (locked) List(context.Context) ([][]byte, error) { return nil, winos.ErrDenied }

// If an object existed before a revision named it, it belongs to someone else. It must stay when no revision names it
// any more.
func TestWhatIsInPlaceStaysWhenARevisionNoLongerNamesIt(t *testing.T) {
	t.Parallel()
	const path, proxy = `C:\k\cni\config\x.conf`, "http://proxy:3128"
	first := []byte{0x30, 0x00}
	h := newHost(t)
	host, ctx := h.Host(), t.Context()
	if err := errors.Join(host.Environment.Set(ctx, "Http_Proxy", proxy),
		host.Environment.Set(ctx, "Https_Proxy", "http://an.earlier:3128"), host.Trust.Add(ctx, first),
		host.Files.MkdirAll(state.Parent(path), winos.AccessAdministrators),
		winos.WriteFile(host.Files, path, strings.NewReader("x"), winos.AccessAdministrators)); err != nil {
		t.Fatal(err)
	}
	a := h.applier()
	bring := func(m contract.Manifest, roots ...[]byte) {
		t.Helper()
		h.state.Manifest = m
		var c contract.Confidential
		for _, der := range roots {
			c.Trust = append(c.Trust, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
		}
		h.confide(t, c)
		if r := h.pass(t, a); !r.Holds() {
			t.Fatal(r.Problem())
		}
		h.state.Verified = true
	}
	without := h.state.Manifest
	with := without
	with.Files = append(slices.Clone(with.Files), contract.File{Path: path, Content: "x"})
	with.EnvironmentVars = map[string]string{"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
	bring(with, first)
	bring(without)
	all, err := host.Environment.All(ctx)
	if err != nil {
		t.Fatal(err)
	}
	there, err := winos.Exists(host.Files, path)
	if err != nil || !there || all["Http_Proxy"] != proxy || all["Https_Proxy"] != "http://an.earlier:3128" {
		t.Errorf("the file exists: %t, the variables are %v, %v", there, all, err)
	}
	trusted, err := host.Trust.List(ctx)
	if err != nil || !slices.ContainsFunc(trusted, func(der []byte) bool { return bytes.Equal(der, first) }) {
		t.Errorf("the CA is not trusted, %v", err)
	}
}
