package report_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/report"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// secret is a text that the test puts in every place where a node may have a secret.
const secret = "hunter2-do-not-tell"

func newMachine(t *testing.T) *sim.Machine {
	t.Helper()
	m, err := sim.New(sim.Options{Hostname: "WIN-A"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// node writes a node's state file on a machine and installs a node's services.
func node(t *testing.T, m *sim.Machine) {
	t.Helper()
	host := m.Host()
	if err := host.Files.MkdirAll(contract.DirK, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	stateFile, err := state.Read(host.Files)
	if err != nil {
		t.Fatal(err)
	}
	before := secret
	manifest := contract.Manifest{Services: []contract.Service{{Name: "kubelet", Command: "kubelet --token=" + secret},
		{Name: "kube-proxy"}}, EnvironmentVars: map[string]string{"HTTP_PROXY": "http://u:" + secret + "@proxy"},
		Files: []contract.File{{Path: `C:\k\a`, Content: secret}}}
	stateFile.State = state.State{NodeName: "win-a", Revision: state.Revision{Name: "2", Manifest: manifest,
		Confidential: []byte(secret)},
		Before:     &state.Revision{Name: "1", Manifest: manifest, Confidential: []byte(secret)},
		NodeValues: map[string]string{"{.x}": secret},
		HostValues: map[contract.Fact]string{contract.FactAWSHostname: secret},
		Failed: &state.FailedRevision{Name: "3", Until: m.Host().System.Now().Add(time.Hour),
			Problem: contract.NewProblem(contract.ReasonServiceFailed, "service kube-proxy ended")},
		Changes: state.Changes{Environment: map[string]state.Variable{"http_proxy": {Name: "HTTP_PROXY",
			Before: &before}}, Certificates: [][]byte{[]byte(secret)}, Files: []string{`C:\k\a`},
			Services: map[string]state.Start{"kubelet": {}, "left-over": {}}, Routes: []string{"169.254.169.254"}}}
	if err = stateFile.Save(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []winos.ServiceConfig{{Name: "kubelet", Description: plan.Description("kubelet"),
		Command: `C:\k\kubelet.exe --token=` + secret, Environment: map[string]string{"TOKEN": secret}},
		{Name: "kube-proxy", Description: secret, Command: `C:\other.exe`}} {
		if err = host.Services.Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err = host.Environment.Set(t.Context(), "HTTP_PROXY", "http://u:"+secret+"@proxy"); err != nil {
		t.Fatal(err)
	}
	if _, err = host.Routes.Ensure(t.Context(), netip.MustParseAddr("169.254.169.254")); err != nil {
		t.Fatal(err)
	}
}

func TestA75_TheReportNamesWhatANodeHasAndNoSecret(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	_, err := m.CreateHNSNetwork(winos.HNSNetwork{Name: contract.HybridOverlayNetwork, VNI: 4097,
		Subnet: netip.MustParsePrefix("10.132.1.0/24"), ManagementIP: netip.MustParseAddr("10.0.0.5")})
	if err != nil {
		t.Fatal(err)
	}
	node(t, m)
	before := len(m.Processes())
	text, err := report.Encode(report.Look(t.Context(), m.Host(), "1.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
		if bytes.Contains(text, []byte(form)) {
			t.Errorf("the report has a secret:\n%s", text)
		}
	}
	var found contract.NodeReport
	if err = json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, s := range found.Services {
		states[s.Name] = fmt.Sprint(s.State, s.Foreign)
	}
	for name, want := range map[string]string{"kubelet": "Stoppedfalse", "kube-proxy": "Stoppedtrue",
		"left-over": "Absentfalse", contract.ServiceDaemon: "Absentfalse"} {
		if states[name] != want {
			t.Errorf("service %s is %s, want %s", name, states[name], want)
		}
	}
	s := found.State
	if found.Node != "win-a" || s.Revision != "2" || s.Before != "1" || s.Failed != "3" || s.Verified || s.Files != 1 ||
		s.Certificates != 1 || s.Variables != 1 || !strings.HasPrefix(s.Why, string(contract.ReasonServiceFailed)) {
		t.Errorf("the report of the state is %+v", s)
	}
	if len(found.Routes) < 2 || len(found.Addresses) == 0 {
		t.Errorf("the report lacks routes or addresses:\n%s", text)
	}
	if want := (contract.ReportedNetwork{Name: contract.HybridOverlayNetwork, Subnet: "10.132.1.0/24",
		ManagementIP: "10.0.0.5", VNI: 4097}); len(found.Networks) != 1 || found.Networks[0] != want {
		t.Errorf("the networks are %+v, want %+v", found.Networks, want)
	}
	if len(m.Processes()) != before || m.Starts().PowerShell != 0 {
		t.Error("the report started a process")
	}
}

func TestA75_ADamagedStateFileIsNotShownAndNotMoved(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	node(t, m)
	if err := winos.WriteFile(m.Host().Files, contract.PathState, strings.NewReader(`{"nodeName": "`+secret+`\x`),
		winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	found := report.Look(t.Context(), m.Host(), "1")
	text, err := report.Encode(found)
	if err != nil || len(found.Unread) == 0 || bytes.Contains(text, []byte(secret)) {
		t.Errorf("%v\n%s", err, text)
	}
	if there, err := winos.Exists(m.Host().Files, contract.PathState); err != nil || !there {
		t.Errorf("the state file was moved: %v", err)
	}
}

func TestA51_TheReportIsBoundedWhateverThingsAreCalled(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<\x1b[31m\u0000\U0001f4a5", 10_000)
	r := contract.NodeReport{Version: long, Node: long, Reconciled: &contract.Reconciled{Desired: long}}
	r.State = contract.ReportedState{Revision: long, Before: long, Failed: long, Why: long}
	for range 10_000 {
		r.Services = append(r.Services, contract.ReportedService{Name: long})
		r.Networks = append(r.Networks, contract.ReportedNetwork{Name: long})
		r.Routes = append(r.Routes, contract.ReportedRoute{Interface: long})
		r.Addresses, r.Unread = append(r.Addresses, long), append(r.Unread, long)
		r.State.Features, r.State.Routes = append(r.State.Features, long), append(r.State.Routes, long)
		r.Reconciled.Problems = append(r.Reconciled.Problems, long)
		r.Reconciled.Differences = append(r.Reconciled.Differences, contract.Difference{Name: long, Why: long})
	}
	text, err := report.Encode(r)
	if err != nil || len(text) > contract.MaxReport || bytes.Contains(text, []byte("\x1b")) ||
		bytes.Contains(text, []byte("\\u001b")) {
		t.Errorf("the report has %d bytes, or control characters for terminals: %v", len(text), err)
	}
}

// counted is a file system that counts writes, and may refuse them.
type counted struct {
	winos.Files
	writes atomic.Int64
	inUse  atomic.Bool
}

func (c *counted) Rename(from, to string) error {
	if to == contract.PathReport && c.inUse.Load() {
		return winos.ErrInUse
	}
	if to == contract.PathReport {
		c.writes.Add(1)
	}
	return c.Files.Rename(from, to)
}

func TestA75_TheReportIsWrittenAtOnceAtNewsAndSeldomOtherwise(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		node(t, m)
		host := m.Host()
		files := &counted{Files: host.Files}
		host.Files = files
		w := report.New(host, "1")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		expect := func(want int64, when string) {
			t.Helper()
			synctest.Wait()
			if got := files.writes.Load(); got != want {
				t.Errorf("%s: the report was written %d times, want %d", when, got, want)
			}
		}
		expect(1, "at the start")
		w.Tell(contract.Reconciled{Phase: "Applying"})
		expect(1, "too soon after the last")
		time.Sleep(11 * time.Second)
		expect(2, "at news")
		if last := report.Last(host.Files); last == nil || last.Phase != "Applying" {
			t.Errorf("the last pass is reported as %+v", last)
		}
		for range 60 {
			w.Tell(contract.Reconciled{Phase: "Applying"})
			time.Sleep(time.Minute)
		}
		expect(14, "after an hour in which nothing changed")
		files.inUse.Store(true)
		w.Tell(contract.Reconciled{Phase: "Steady"})
		time.Sleep(time.Minute)
		expect(14, "while somebody reads it")
		files.inUse.Store(false)
		time.Sleep(5 * time.Minute)
		if last := report.Last(host.Files); last == nil || last.Phase != "Steady" {
			t.Errorf("the last pass is reported as %+v", last)
		}
		if _, err := host.Files.Stat(contract.PathReport + ".tmp"); err == nil {
			t.Error("a write left a file behind")
		}
		stop()
		<-done
	})
}

// written makes a machine write its report once.
func written(t *testing.T, m *sim.Machine) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			report.New(m.Host(), "1").Run(ctx)
		}()
		synctest.Wait()
		stop()
		<-done
	})
}

// Any local user can create files below C:\var\log.
func TestAReportIsNobodyElsesWhoeverMadeAFileInItsPlace(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	node(t, m)
	files, temporary := m.Host().Files, contract.PathReport+".tmp"
	if err := files.MkdirAll(contract.DirDaemonLog, winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	w, err := files.Create(temporary, winos.AccessInherit)
	if err == nil {
		err = errors.Join(w.Close(), m.Disown(temporary))
	}
	if err != nil {
		t.Fatal(err)
	}
	written(t, m)
	if info, err := files.Stat(contract.PathReport); err != nil || info.Size == 0 || info.Foreign {
		t.Errorf("the report is %+v, %v", info, err)
	}
}

func TestA51_NoMoreThanAReportIsReadWhoeverWroteIt(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const text = `{"reconciled":{"phase":"Steady"}}`
	if err := m.Host().Files.MkdirAll(contract.DirDaemonLog, winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]bool{contract.MaxReport: true, contract.MaxReport + 1: false} {
		if err := winos.WriteFile(m.Host().Files, contract.PathReport,
			strings.NewReader(text+strings.Repeat(" ", size-len(text))), winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
		if last := report.Last(m.Host().Files); (last != nil) != want {
			t.Errorf("a file of %d bytes is read as %+v", size, last)
		}
	}
}

// silent is a service manager that does not answer.
type silent struct{ winos.Services }

func (silent) Get(ctx context.Context, _ string) (winos.Service, error) {
	<-ctx.Done()
	return winos.Service{}, errors.New("the service manager does not answer")
}

func TestA75_WhatDoesNotAnswerCostsItsOwnPartOfTheReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		node(t, m)
		host := m.Host()
		host.Services = silent{host.Services}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		found := report.Look(ctx, host, "1")
		if len(found.Unread) == 0 || found.State.Revision != "2" || len(found.Routes) == 0 || ctx.Err() != nil {
			t.Errorf("the report is %+v", found)
		}
	})
}
