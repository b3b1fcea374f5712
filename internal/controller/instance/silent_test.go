package instance

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// settled are hosts at a revision that differs from the desired one in a setting only, which brings no payload.
func settled(t *testing.T, hosts ...int) (r *rig, held string) {
	t.Helper()
	r = newRig(t)
	manifest := func(setting string) contract.Manifest {
		return contract.Manifest{
			Services: []contract.Service{{Name: "kubelet", Command: `C:\k\kubelet.exe`, Disruptive: true, Bootstrap: true}},
			Files: []contract.File{
				{Path: `C:\k\kubelet.exe`, Digest: strings.Repeat("0", 64), Size: 1, Services: []string{"kubelet"}},
				{Path: `C:\k\kubelet.conf`, Content: setting, Services: []string{"kubelet"}},
			},
		}
	}
	desire := func(setting string) {
		r.manifest = manifest(setting)
		r.version = "1.0.0-" + r.manifest.Digest()[:contract.RevisionDigits]
		r.publish(t, r.version, r.manifest)
	}
	desire("before")
	for _, n := range hosts {
		if err := r.api.Create(t.Context(), listed(n)[0]); err != nil {
			t.Fatal(err)
		}
		r.join(t, n)
		r.talks(t, n)
		r.reconcile(t, n)
	}
	held = r.version
	r.advance(t, hosts[0], 24*time.Hour)
	desire("after")
	return r, held
}

// A setting brings nothing that a daemon would fetch first, so one that has been dead for weeks is found only when the
// setting is requested.
func TestADaemonThatWasDeadBeforeBlamesNoSetting(t *testing.T) {
	t.Parallel()
	r, _ := settled(t, 1, 2)
	dials := r.machine(1).Dials()
	r.reconcile(t, 1)
	for range 12 {
		r.advance(t, 1, time.Minute)
	}
	i := r.get(t, 1)
	if i.Status.UpdateFailure != nil || r.machine(1).Dials() == dials {
		t.Fatalf("after the time for the proof: %d dials, %+v", r.machine(1).Dials()-dials, i.Status)
	}
	r.register(t, 1, r.version)
	r.joinsAgain(t, 1)
	r.annotate(t, 1, contract.RevisionAnnotation, r.version)
	r.reconcile(t, 1)
	if i = r.get(t, 1); i.Status.Phase != v1alpha1.PhaseReady || i.Status.Revision != r.version ||
		i.Status.Disruption != nil || i.Status.UpdateFailure != nil {
		t.Errorf("it was joined again, and is %+v", i.Status)
	}
	r.reconcile(t, 2)
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
}

// A setting that keeps the daemon of every node from the API server must not go on to the next.
func TestASettingAtWhichADaemonNeverReportsHaltsTheRollout(t *testing.T) {
	t.Parallel()
	r, held := settled(t, 1, 2)
	r.reconcile(t, 1)
	for range 12 {
		r.advance(t, 1, time.Minute)
	}
	r.joinsAgain(t, 1)
	for range 12 {
		r.advance(t, 1, time.Minute)
	}
	i := r.get(t, 1)
	if i.Status.UpdateFailure == nil || i.Status.UpdateFailure.Revision != r.version || i.Status.DesiredRevision != held {
		t.Fatalf("it never reported, over SSH either: %+v", i.Status)
	}
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(2)) })
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonRolloutHalted)
}
