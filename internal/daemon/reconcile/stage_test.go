package reconcile_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/reconcile"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

const newProxy, newKubelet = "MZ proxy of the next version", "MZ kubelet of the next version"

// next returns a revision with two other programs.
func next() contract.Manifest {
	return bringing(map[string]string{contract.PathKubeProxy: newProxy, contract.PathKubelet: newKubelet})
}

// stages checks what the Node shows about staging.
func (r *rig) stages(t *testing.T, version string, bytes int, status contract.Reason) {
	t.Helper()
	a := r.annotations(t)
	exists, _, _ := strings.Cut(a[contract.StageStatusAnnotation], ":")
	count := ""
	if version != "" {
		count = strconv.Itoa(bytes)
	}
	if a[contract.StagedAnnotation] != version || a[contract.StagedBytesAnnotation] != count || exists != string(status) {
		t.Errorf("want %q of %q bytes and status %q, the Node reports %v", version, count, status, a)
	}
}

func TestAVersionIsStagedWhileTheNodeServes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supplied(t, newProxy, newKubelet)
		holds(t, r)
		before := r.Snapshot()
		version := r.publish(t, next())
		r.annotate(t, contract.StageAnnotation, version)
		pass(5 * time.Second)
		r.stages(t, version, len(newProxy)+len(newKubelet), "")
		if !r.has(t, newProxy) || !r.has(t, newKubelet) {
			t.Error("the payload is not in the store")
		}
		for _, line := range sim.Diff(before, r.Snapshot(), contract.DirStore) {
			t.Error(line)
		}
		r.expectStatus(t, one(), "")
		// The change to the staged revision must not need a payload server.
		r.payloadServer.set(func() { r.payloadServer.away = true })
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(20 * time.Second)
		r.expectStatus(t, version, "")
		if r.payloadServer.count(newProxy) != 1 || r.payloadServer.count(newKubelet) != 1 {
			t.Errorf("sent: %v", r.payloadServer.sent)
		}
		r.stopDaemon()
		r.start(t, r.api)
		pass(time.Minute)
		r.stages(t, version, len(newProxy)+len(newKubelet), "")
		r.annotate(t, contract.StageAnnotation, "")
		pass(time.Minute)
		r.stages(t, version, len(newProxy)+len(newKubelet), "")
	})
}

func TestStagingIsTriedUntilItSucceedsAndSaysWhyNot(t *testing.T) {
	for name, c := range map[string]struct {
		spoil, mend func(t *testing.T, r *rig)
		want        contract.Reason
	}{
		"the payload server is away": {
			spoil: func(_ *testing.T, r *rig) { r.payloadServer.set(func() { r.payloadServer.away = true }) },
			mend:  func(_ *testing.T, r *rig) { r.payloadServer.set(func() { r.payloadServer.away = false }) },
			want:  contract.ReasonPayloadIncomplete,
		},
		"the payload server sends damaged data": {
			spoil: func(_ *testing.T, r *rig) { r.payloadServer.set(func() { r.payloadServer.spoiled = true }) },
			mend:  func(_ *testing.T, r *rig) { r.payloadServer.set(func() { r.payloadServer.spoiled = false }) },
			want:  contract.ReasonPayloadCorrupt,
		},
		"the disk is full": {
			spoil: func(_ *testing.T, r *rig) { r.SetDiskFree(1 << 29) },
			mend:  func(_ *testing.T, r *rig) { r.SetDiskFree(1 << 32) }, want: contract.ReasonDiskFull,
		},
		"the address of the payload server is missing": {
			spoil: func(t *testing.T, r *rig) {
				if err := r.api.Tracker().Delete(configMaps, namespace, contract.PayloadSourceConfigMap); err != nil {
					t.Fatal(err)
				}
			},
			mend: func(t *testing.T, r *rig) { d := r.payloadServer; r.supplied(t); r.payloadServer = d },
			want: contract.ReasonPayloadIncomplete,
		},
		"the manifest is missing": {
			spoil: func(t *testing.T, r *rig) {
				if err := r.api.Tracker().Delete(configMaps, namespace,
					contract.ServicesConfigMapPrefix+versionOf(next())); err != nil {
					t.Fatal(err)
				}
			},
			mend: func(t *testing.T, r *rig) { r.publish(t, next()) }, want: contract.ReasonManifestMissing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.supplied(t, newProxy, newKubelet)
				holds(t, r)
				version := r.publish(t, next())
				c.spoil(t, r)
				r.annotate(t, contract.StageAnnotation, version)
				pass(time.Minute)
				r.stages(t, "", 0, c.want)
				if r.has(t, newProxy) || r.has(t, newKubelet) {
					t.Error("the store has payload")
				}
				r.expectStatus(t, one(), "")
				c.mend(t, r)
				pass(5 * time.Minute)
				if a := r.annotations(t); a[contract.StagedAnnotation] != version ||
					a[contract.StageStatusAnnotation] != "" {
					t.Errorf("the Node's annotations are %v", a)
				}
				if !r.has(t, newProxy) || !r.has(t, newKubelet) {
					t.Error("the payload is not in the store")
				}
			})
		})
	}
}

func TestStagingThatTakesLongSaysHowFarItIs(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supplied(t, newProxy, newKubelet)
		holds(t, r)
		r.payloadServer.set(func() { r.payloadServer.slow = 10 * time.Minute })
		version := r.publish(t, next())
		r.annotate(t, contract.StageAnnotation, version)
		pass(5 * time.Minute)
		r.stages(t, "", 0, contract.ReasonStaging)
		pass(10 * time.Minute)
		if exists := r.annotations(t)[contract.StageStatusAnnotation]; !strings.Contains(exists, "1 of ") {
			t.Errorf("the status is %q", exists)
		}
		pass(10 * time.Minute)
		r.stages(t, version, len(newProxy)+len(newKubelet), "")
	})
}

func TestAPayloadServerThatIsAwayIsNotStormed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supplied(t)
		holds(t, r)
		r.annotate(t, contract.StageAnnotation, r.publish(t, next()))
		pass(time.Minute)
		r.api.ClearActions()
		pass(time.Hour)
		// Each attempt reads the ConfigMap with the payload server's address once, so this counts the attempts.
		if n := len(r.api.Actions()); n > 60 {
			t.Errorf("%d requests within an hour", n)
		}
	})
}

func TestADaemonKilledWhileItStagesGoesOnWithTheNextBlob(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supplied(t, newProxy, newKubelet)
		r.payloadServer.slow = 10 * time.Second
		holds(t, r)
		version := r.publish(t, next())
		r.annotate(t, contract.StageAnnotation, version)
		pass(15 * time.Second)
		r.stopDaemon()
		if n := r.payloadServer.count(newProxy) + r.payloadServer.count(newKubelet); n != 1 {
			t.Fatalf("%d blobs were transferred", n)
		}
		r.start(t, r.api)
		pass(15 * time.Second)
		if r.payloadServer.count(newProxy) != 1 || r.payloadServer.count(newKubelet) != 1 {
			t.Errorf("sent: %v", r.payloadServer.sent)
		}
		if a := r.annotations(t); a[contract.StagedAnnotation] != version {
			t.Errorf("the Node's annotations are %v", a)
		}
		r.expectNoLeftovers(t)
	})
}

func TestAnotherVersionToStageEndsTheFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		other := bringing(map[string]string{contract.PathKubeProxy: "MZ yet another"})
		r.supplied(t, newProxy, newKubelet, "MZ yet another")
		r.payloadServer.slow = time.Hour
		holds(t, r)
		r.annotate(t, contract.StageAnnotation, r.publish(t, next()))
		pass(time.Minute)
		r.payloadServer.set(func() { r.payloadServer.slow = 0 })
		version := r.publish(t, other)
		r.annotate(t, contract.StageAnnotation, version)
		pass(5 * time.Second)
		r.stages(t, version, len("MZ yet another"), "")
		if r.has(t, newProxy) || r.has(t, newKubelet) {
			t.Error("the first revision's payload was fetched as well")
		}
		r.expectNoLeftovers(t)
	})
}

func TestASlowPayloadServerKeepsNobodyWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supplied(t, newProxy, newKubelet)
		r.payloadServer.slow = time.Hour
		holds(t, r)
		r.annotate(t, contract.StageAnnotation, r.publish(t, next()))
		pass(time.Second)
		if err := r.Host().Services.Stop(t.Context(), "kube-proxy"); err != nil {
			t.Fatal(err)
		}
		version := r.publish(t, another("two"))
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(20 * time.Second)
		r.expectStatus(t, version, "")
		if state := r.state(t, "kube-proxy"); state != winos.ServiceRunning {
			t.Errorf("kube-proxy is %s", state)
		}
	})
}

func TestStagedPayloadIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supplied(t, newProxy, newKubelet)
		r.pace = reconcile.Intervals{QuickCheck: 10 * time.Minute, Resync: time.Hour}
		holds(t, r)
		version := r.publish(t, next())
		r.annotate(t, contract.StageAnnotation, version)
		pass(100 * time.Hour)
		if !r.has(t, newProxy) || !r.has(t, newKubelet) {
			t.Error("staged payload was removed")
		}
		r.annotate(t, contract.StageAnnotation, "")
		pass(100 * time.Hour)
		if r.has(t, newProxy) || r.has(t, newKubelet) {
			t.Error("unused payload is still stored")
		}
	})
}

func TestADesiredVersionWhosePayloadIsNotHereIsFetchedByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supplied(t, newProxy, newKubelet)
		r.payloadServer.away = true
		holds(t, r)
		version := r.publish(t, next())
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(2 * time.Minute)
		r.expectStatus(t, one(), contract.ReasonPayloadIncomplete)
		r.expectServing(t, "{}")
		r.payloadServer.set(func() { r.payloadServer.away = false })
		pass(3 * time.Minute)
		r.expectStatus(t, version, "")
		if got := r.read(t, contract.PathKubeProxy); got != newProxy {
			t.Errorf("kube-proxy is %q", got)
		}
	})
}

func TestADesiredVersionThatChangesWhileItsPayloadComesIsLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supplied(t, newProxy, newKubelet)
		r.payloadServer.slow = time.Hour
		holds(t, r)
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, next()))
		pass(time.Minute)
		version := r.publish(t, another("two"))
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(20 * time.Second)
		r.expectStatus(t, version, "")
		if r.payloadServer.count(newProxy)+r.payloadServer.count(newKubelet) > 0 {
			t.Error("payload that is no longer needed was fetched")
		}
	})
}

func TestDamagedPayloadIsFetchedAgain(t *testing.T) {
	for name, stagedBefore := range map[string]bool{"of the version that holds": false,
		"of a version that was staged": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.supplied(t, newProxy, newKubelet, "MZ proxy")
				holds(t, r)
				version, content := one(), "MZ proxy"
				if stagedBefore {
					version, content = r.publish(t, next()), newProxy
					r.annotate(t, contract.StageAnnotation, version)
					pass(5 * time.Second)
				}
				r.write(t, contract.DirStore+`\`+digestOf(content), strings.Repeat("x", len(content)))
				if stagedBefore {
					r.annotate(t, contract.DesiredRevisionAnnotation, version)
				} else if err := r.Host().Services.Stop(t.Context(), "kube-proxy"); err != nil {
					t.Fatal(err)
				} else if err = r.Host().Files.Remove(contract.PathKubeProxy); err != nil {
					t.Fatal(err)
				}
				pass(5 * time.Minute)
				r.expectStatus(t, version, "")
				if got := r.read(t, contract.PathKubeProxy); got != content || !r.has(t, content) {
					t.Errorf("kube-proxy is %q", got)
				}
			})
		})
	}
}
