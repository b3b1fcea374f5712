package reconcile_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// holds starts the daemon, and waits until revision 1 is verified.
func holds(t *testing.T, r *rig) {
	t.Helper()
	r.publish(t, manifest())
	r.node(t, one())
	r.overlay(t)
	r.start(t, r.api)
	pass(10 * time.Second)
	if a := r.annotations(t); a[contract.RevisionAnnotation] != one() || a[contract.ApplyStatusAnnotation] != "" {
		t.Fatalf("the Node's annotations are %v", a)
	}
}

func TestEverythingComesUpAndTheNodeSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		for _, s := range manifest().Services {
			if state := r.state(t, s.Name); state != winos.ServiceRunning {
				t.Errorf("%s is %s", s.Name, state)
			}
		}
		if s, err := r.Host().Services.Get(t.Context(), "hybrid-overlay-node"); err != nil ||
			!strings.HasSuffix(s.Command, "--node win-a") {
			t.Errorf("command %q, %v", s.Command, err)
		}
		if got := r.read(t, contract.PathKubeProxyConfig); got != "vip: 10.132.1.2" {
			t.Errorf("kube-proxy.conf is %q", got)
		}
	})
}

func TestALateServiceWaitsForTheNetworkAndSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.publish(t, manifest())
		r.node(t, one())
		r.start(t, r.api)
		pass(20 * time.Second)
		if status := r.annotations(t)[contract.ApplyStatusAnnotation]; !strings.HasPrefix(status,
			"NetworkPending: ") {
			t.Errorf("status %q", status)
		}
		if state := r.state(t, "hybrid-overlay-node"); state != winos.ServiceRunning {
			t.Errorf("the service that creates the network is %s", state)
		}
		if state := r.state(t, "kube-proxy"); state != "absent" {
			t.Errorf("kube-proxy is %s", state)
		}
		r.overlay(t)
		pass(20 * time.Second)
		a := r.annotations(t)
		if _, exists := a[contract.ApplyStatusAnnotation]; exists || a[contract.RevisionAnnotation] != one() ||
			r.state(t, "kube-proxy") != winos.ServiceRunning {
			t.Errorf("with the network: %v, kube-proxy %s", a, r.state(t, "kube-proxy"))
		}
	})
}

func TestAHostNetworkServiceThatDoesNotAnswerStopsNothingElse(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.hns.hang()
		pass(5 * time.Minute)
		if err := r.Host().Services.Stop(t.Context(), "kubelet"); err != nil {
			t.Error(err)
		}
		pass(time.Minute)
		if state := r.state(t, "kubelet"); state != winos.ServiceRunning {
			t.Errorf("a minute after kubelet was stopped, it is %s", state)
		}
		pass(20 * time.Minute)
		if status := r.annotations(t)[contract.ApplyStatusAnnotation]; !strings.HasPrefix(status, "NetworkPending: ") ||
			!strings.Contains(status, "has not answered") {
			t.Errorf("status %q", status)
		}
		if calls := r.hns.goOn(); calls > 4 {
			t.Errorf("%d calls wait for an answer", calls)
		}
		pass(time.Minute)
		r.expectStatus(t, one(), "")
	})
}

func TestA13_DriftIsRepaired(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, r *rig) error
		whole  func(t *testing.T, r *rig) bool
	}{
		"a service stopped by hand": {
			func(t *testing.T, r *rig) error { return r.Host().Services.Stop(t.Context(), "kube-proxy") },
			func(t *testing.T, r *rig) bool { return r.state(t, "kube-proxy") == winos.ServiceRunning },
		},
		"a service stopped with its dependants": {
			func(t *testing.T, r *rig) error { return r.Host().Services.Stop(t.Context(), "containerd") },
			func(t *testing.T, r *rig) bool { return r.state(t, "kube-proxy") == winos.ServiceRunning },
		},
		"a service deleted by hand": {
			func(t *testing.T, r *rig) error {
				return errors.Join(r.Host().Services.Stop(t.Context(), "kube-proxy"),
					r.Host().Services.Delete(t.Context(), "kube-proxy"))
			},
			func(t *testing.T, r *rig) bool { return r.state(t, "kube-proxy") == winos.ServiceRunning },
		},
		"a service's command changed, its dependants running": {
			func(t *testing.T, r *rig) error {
				s, err := r.Host().Services.Get(t.Context(), "kubelet")
				s.Command += " --anonymous-auth"
				return errors.Join(err, r.Host().Services.Apply(t.Context(), s.ServiceConfig))
			},
			func(t *testing.T, r *rig) bool {
				s, err := r.Host().Services.Get(t.Context(), "kubelet")
				return err == nil && s.Command == contract.PathKubelet &&
					r.state(t, "kube-proxy") == winos.ServiceRunning
			},
		},
		"a file changed": {
			func(t *testing.T, r *rig) error { r.write(t, contract.PathKubeletConfig, "{bad}"); return nil },
			func(t *testing.T, r *rig) bool { return r.read(t, contract.PathKubeletConfig) == "{}" },
		},
		"a file deleted": {
			func(t *testing.T, r *rig) error { return r.Host().Files.Remove(contract.PathKubeProxyConfig) },
			func(t *testing.T, r *rig) bool {
				return r.read(t, contract.PathKubeProxyConfig) == "vip: 10.132.1.2" &&
					r.state(t, "kube-proxy") == winos.ServiceRunning
			},
		},
		"a program deleted": {
			func(t *testing.T, r *rig) error {
				return errors.Join(r.Host().Services.Stop(t.Context(), "kube-proxy"),
					r.Host().Files.Remove(contract.PathKubeProxy))
			},
			func(t *testing.T, r *rig) bool {
				return r.read(t, contract.PathKubeProxy) == "MZ proxy" &&
					r.state(t, "kube-proxy") == winos.ServiceRunning
			},
		},
		"an environment variable removed": {
			func(t *testing.T, r *rig) error { return r.Host().Environment.Unset(t.Context(), "HTTP_PROXY") },
			func(t *testing.T, r *rig) bool {
				all, err := r.Host().Environment.All(t.Context())
				return err == nil && all["HTTP_PROXY"] == "http://proxy"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				if err := c.damage(t, r); err != nil {
					t.Fatal(err)
				}
				if c.whole(t, r) {
					t.Fatal("the test changed nothing")
				}
				pass(11 * time.Second)
				if !c.whole(t, r) {
					t.Error("the daemon did not repair the change within 11 s")
				}
				pass(20 * time.Second)
				if a := r.annotations(t); a[contract.RevisionAnnotation] != one() ||
					a[contract.ApplyStatusAnnotation] != "" {
					t.Errorf("the Node's annotations are %v", a)
				}
			})
		})
	}
}

func TestA14_AServiceThatLeavesTheManifestLeavesTheNode(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		less := manifest()
		less.Services = less.Services[:3]
		var files []contract.File
		for _, f := range less.Files {
			if f.Path != contract.PathKubeProxy && f.Path != contract.PathKubeProxyConfig {
				files = append(files, f)
			}
		}
		less.Files = files
		before, err := r.Host().Services.Get(t.Context(), "kubelet")
		if err != nil {
			t.Fatal(err)
		}
		two := r.publish(t, less)
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(5 * time.Second)
		if state := r.state(t, "kube-proxy"); state != "absent" {
			t.Errorf("kube-proxy is %s", state)
		}
		if r.read(t, contract.PathKubeProxy) != "absent" || r.read(t, contract.PathKubeProxyConfig) != "absent" {
			t.Error("its files are left")
		}
		if after, err := r.Host().Services.Get(t.Context(), "kubelet"); err != nil || after.PID != before.PID {
			t.Error("kubelet was restarted")
		}
		if v := r.annotations(t)[contract.RevisionAnnotation]; v != two {
			t.Errorf("version %q", v)
		}
	})
}

func TestA15_TheVersionComesBackAfterEverythingWasVerified(t *testing.T) {
	for name, value := range map[string]string{"removed": "", "invalid": "nonsense"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				before, err := r.Host().Services.Get(t.Context(), "kubelet")
				if err != nil {
					t.Fatal(err)
				}
				r.annotate(t, contract.RevisionAnnotation, value)
				pass(time.Second)
				if v := r.annotations(t)[contract.RevisionAnnotation]; v != one() {
					t.Errorf("version %q", v)
				}
				if after, err := r.Host().Services.Get(t.Context(), "kubelet"); err != nil || after.PID != before.PID {
					t.Error("kubelet was restarted without a reason")
				}
			})
		})
	}
}

func TestABadManifestChangesNothingAndIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		next := manifest()
		next.Files[0].Content = "{ }"
		two := versionOf(next)
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(10 * time.Second)
		status := func(want string) {
			t.Helper()
			if status := r.annotations(t)[contract.ApplyStatusAnnotation]; !strings.HasPrefix(status, want+": ") {
				t.Errorf("want %s, got %q", want, status)
			}
		}
		status("ManifestMissing")
		r.publishData(t, two, map[string]string{"services": "[{]", "files": "[]"})
		pass(time.Minute)
		status("ManifestInvalid")
		other, err := manifest().Data()
		if err != nil {
			t.Fatal(err)
		}
		r.publishData(t, two, other) // a valid manifest, but not the manifest of this revision
		pass(90 * time.Second)
		status("ManifestInvalid")
		if state := r.state(t, "kube-proxy"); state != winos.ServiceRunning {
			t.Errorf("kube-proxy is %s", state)
		}
		if v := r.annotations(t)[contract.RevisionAnnotation]; v != one() ||
			r.read(t, contract.PathKubeletConfig) != "{}" {
			t.Errorf("version %q", v)
		}
		r.publish(t, next)
		pass(90 * time.Second)
		if a := r.annotations(t); a[contract.RevisionAnnotation] != two || a[contract.ApplyStatusAnnotation] != "" {
			t.Errorf("with a valid manifest: %v", a)
		}
	})
}

func TestWithoutTheAPIServerServicesStartAfterAReboot(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.stopDaemon()
		if err := errors.Join(r.Host().Services.Stop(t.Context(), "containerd"),
			r.Host().Services.Delete(t.Context(), "hybrid-overlay-node")); err != nil {
			t.Fatal(err)
		}
		r.start(t, nil)
		pass(5 * time.Second)
		for _, s := range manifest().Services {
			if state := r.state(t, s.Name); state != winos.ServiceRunning {
				t.Errorf("%s is %s", s.Name, state)
			}
		}
	})
}

func TestTheAPIServerAwayForAMinuteLosesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		away := errors.New("connection refused")
		var down atomic.Bool
		down.Store(true)
		r.api.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return down.Load(),
				nil, away
		})
		r.publish(t, manifest())
		r.node(t, one())
		r.overlay(t)
		r.start(t, r.api)
		pass(time.Minute)
		if n := len(r.api.Actions()); n > 10 {
			t.Errorf("%d requests within a minute", n)
		}
		down.Store(false)
		pass(40 * time.Second)
		if v := r.annotations(t)[contract.RevisionAnnotation]; v != one() {
			t.Errorf("version %q", v)
		}
	})
}

// Each error of a connection has another text, because it contains the local port.
func TestErrorsWithDifferentTextsDoNotShortenThePauses(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		var reads atomic.Int64
		r.api.PrependReactor("*", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, fmt.Errorf("read tcp 192.0.2.10:%d: connection reset", reads.Add(1))
		})
		next := manifest()
		next.Files[0].Content = "{ }"
		r.annotate(t, contract.DesiredRevisionAnnotation, versionOf(next))
		pass(10 * time.Minute)
		// The pauses grow from 5 s to a minute, and each may be a fifth shorter.
		if n := reads.Load(); n < 5 || n > 20 {
			t.Errorf("%d reads within ten minutes", n)
		}
	})
}

func TestAServiceThatDoesNotStayUpIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.crashing.Store(true)
		if err := r.CrashService("kube-proxy"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		if status := r.annotations(t)[contract.ApplyStatusAnnotation]; !strings.HasPrefix(status,
			"ServiceFailed: ") || !strings.Contains(status, "kube-proxy") {
			t.Errorf("status %q", status)
		}
		r.crashing.Store(false)
		pass(10 * time.Minute)
		if a := r.annotations(t); a[contract.ApplyStatusAnnotation] != "" ||
			r.state(t, "kube-proxy") != winos.ServiceRunning {
			t.Errorf("mended: %v", a)
		}
	})
}

func TestAServiceThatDoesNotStayUpIsReportedBetweenItsStartsToo(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.crashing.Store(true)
		if err := r.CrashService("kube-proxy"); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Minute)
		for range 120 {
			pass(15 * time.Second)
			r.expectStatus(t, one(), contract.ReasonServiceFailed)
			if file, err := state.Read(r.Host().Files); err != nil || len(file.Faults) == 0 {
				t.Errorf("the state file has the failures %v, %v", file.Faults, err)
			}
		}
	})
}

func TestIdleCostsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		pass(time.Minute)
		r.api.ClearActions()
		starts := r.Starts()
		pass(4 * time.Minute) // a watch is opened again after five minutes at the earliest
		for _, action := range r.api.Actions() {
			t.Errorf("a request while idle: %s %s", action.GetVerb(), action.GetResource().Resource)
		}
		if now := r.Starts(); now != starts {
			t.Errorf("processes were started: %+v, before %+v", now, starts)
		}
	})
}

func TestHeartbeatsOfTheNodeCauseNoWork(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		pass(time.Second)
		r.api.ClearActions()
		for range 20 {
			r.annotate(t, "example.com/heartbeat", time.Now().String())
			pass(time.Second)
		}
		if n := len(r.api.Actions()); n > 0 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestWhatTheNodeSaysIsNotPutIntoACommandUnchecked(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		m := manifest()
		m.Services[2].NodeVariables[0].JSONPath = `{.metadata.annotations.evil}`
		r.node(t, r.publish(t, m))
		r.annotate(t, "evil", `x" --privileged`)
		r.start(t, r.api)
		pass(10 * time.Second)
		if status := r.annotations(t)[contract.ApplyStatusAnnotation]; !strings.HasPrefix(status,
			"ManifestInvalid: ") {
			t.Errorf("status %q", status)
		}
		if s, err := r.Host().Services.Get(t.Context(), "hybrid-overlay-node"); err == nil &&
			strings.Contains(s.Command, "privileged") {
			t.Errorf("the command is %q", s.Command)
		}
	})
}
