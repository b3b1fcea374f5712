package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/reconcile"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// rich returns a desired state that differs from the first desired state in every respect.
func rich(t *testing.T, r *rig, ca string) (contract.Manifest, contract.Confidential) {
	t.Helper()
	m := another("two")
	r.write(t, contract.DirStore+`\`+digestOf("MZ proxy 2"), "MZ proxy 2")
	r.write(t, contract.DirStore+`\`+digestOf("MZ csi"), "MZ csi")
	for i, f := range m.Files {
		if f.Path == contract.PathKubeProxy {
			m.Files[i].Digest, m.Files[i].Size = digestOf("MZ proxy 2"), int64(len("MZ proxy 2"))
		}
	}
	m.Files = append(m.Files, contract.File{Path: contract.PathCSIProxy, Digest: digestOf("MZ csi"),
		Size: int64(len("MZ csi")), Services: []string{"csi-proxy"}})
	m.Services = append(m.Services, contract.Service{Name: "csi-proxy", Command: contract.PathCSIProxy, Priority: 2})
	m.Services[2].Command += " --loglevel=5"
	m.EnvironmentVars = map[string]string{"NO_PROXY": "localhost"}
	m.WatchedEnvironmentVars = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
	c := rules("a.example", "b.example")
	c.Trust = []string{ca}
	c.Environment = map[string]string{"HTTPS_PROXY": secretProxy}
	c.Files = []contract.File{{Path: `C:\k\tls\certs\tls.crt`, Content: "certificate"},
		{Path: `C:\k\tls\certs\tls.key`, Content: "key"}}
	return m, c
}

// own returns paths whose files contain process IDs or keys, so their content is different in each run.
func own() []string { return []string{contract.PathState, contract.DirDaemonCerts} }

// undisrupted applies a revision without crashes. It returns the resulting machine, and how many changes of the machine
// this took.
func undisrupted(t *testing.T, picky bool, ca string) (want sim.Snapshot, changes int64) {
	t.Helper()
	t.Run("without a crash", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			holds(t, r)
			r.stopDaemon()
			m, c := rich(t, r, ca)
			r.picky.Store(picky)
			r.want(t, m, c)
			r.mortal = &mortal{}
			r.start(t, r.api)
			pass(20 * time.Second)
			want, changes = r.Snapshot(), r.mortal.calls
			if got := r.read(t, contract.PathKubeletConfig); got != map[bool]string{false: "two", true: "{}"}[picky] {
				t.Errorf("kubelet's configuration is %q", got)
			}
			r.expectNoLeftovers(t)
		})
	})
	return want, changes
}

func TestADaemonKilledAtAnyStepOfAnApplyFinishesIt(t *testing.T) {
	t.Parallel()
	_, ca := newCA(t, "ours")
	for name, picky := range map[string]bool{"that succeeds": false, "that has to go back": true} {
		t.Run(name, func(t *testing.T) {
			want, changes := undisrupted(t, picky, ca)
			if changes < 40 {
				t.Fatalf("only %d changes were counted", changes)
			}
			t.Logf("%d changes", changes)
			for at := int64(1); at <= changes; at++ {
				t.Run(fmt.Sprintf("before change %d", at), func(t *testing.T) {
					inBubble(t, func(t *testing.T, r *rig) {
						holds(t, r)
						r.stopDaemon()
						m, c := rich(t, r, ca)
						r.picky.Store(picky)
						version := r.want(t, m, c)
						r.mortal = &mortal{at: at}
						r.start(t, r.api)
						pass(20 * time.Second)
						r.stopDaemon()
						r.mortal = nil
						r.start(t, r.api)
						pass(20 * time.Second)
						for _, line := range sim.Diff(want, r.Snapshot(), own()...) {
							t.Error(line)
						}
						r.expectNoLeftovers(t)
						a := r.annotations(t)
						if !picky && (a[contract.RevisionAnnotation] != version ||
							a[contract.ApplyStatusAnnotation] != "") {
							t.Errorf("the Node's annotations are %v", a)
						}
						if picky && (a[contract.RevisionAnnotation] != one() ||
							!strings.HasPrefix(a[contract.ApplyStatusAnnotation],
								"ServiceFailed: revision "+version)) {
							t.Errorf("the Node's annotations are %v", a)
						}
					})
				})
			}
		})
	}
}

func TestADiskThatFillsUpAtAnyStepOfAnApplyLeavesTheNodeServing(t *testing.T) {
	t.Parallel()
	_, ca := newCA(t, "ours")
	want, changes := undisrupted(t, false, ca)
	for at := int64(1); at <= changes; at++ {
		t.Run(fmt.Sprintf("before change %d", at), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				r.stopDaemon()
				m, c := rich(t, r, ca)
				version := r.want(t, m, c)
				r.mortal = &mortal{at: at, strike: func() { r.SetDiskFree(0) }}
				r.pace = reconcile.Intervals{RetryLimit: 2 * time.Minute}
				r.start(t, r.api)
				pass(3 * time.Minute)
				for _, s := range manifest().Services {
					if state := r.state(t, s.Name); state != winos.ServiceRunning {
						t.Errorf("%s is %s", s.Name, state)
					}
				}
				a := r.annotations(t)
				if a[contract.RevisionAnnotation] != version &&
					!strings.HasPrefix(a[contract.ApplyStatusAnnotation], "DiskFull") {
					t.Errorf("the Node's annotations are %v", a)
				}
				r.SetDiskFree(1 << 30)
				pass(5 * time.Minute)
				r.expectStatus(t, version, "")
				for _, line := range sim.Diff(want, r.Snapshot(), own()...) {
					t.Error(line)
				}
				r.expectNoLeftovers(t)
			})
		})
	}
}
