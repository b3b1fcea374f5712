package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// release marks the Node as released, as the operator does.
func (w *world) release(t *testing.T) {
	t.Helper()
	w.mark(t, fmt.Sprintf("%q", w.node(t).Annotations[contract.CertificateEndAnnotation]))
}

// mark writes the annotation of a released host, which only the operator may write.
func (w *world) mark(t *testing.T, value string) {
	t.Helper()
	config := rest.CopyConfig(w.Admin())
	config.Impersonate = rest.ImpersonationConfig{Groups: []string{"system:masters"},
		UserName: "system:serviceaccount:" + contract.OperatorNamespace + ":" + contract.OperatorServiceAccount}
	operator, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, contract.ReleasedAnnotation, value)
	if _, err = operator.CoreV1().Nodes().Patch(t.Context(), "win-a", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A host was off when its removal was forced, and its Node was deleted. When the host is on again, kubelet registers
// the Node again. Then the host must clean itself.
func TestAHostThatWasLetGoByForceCleansItselfWhenItComesBack(t *testing.T) {
	t.Parallel()
	w := joinedWorld(t)
	w.PowerCut()
	if err := w.admin.CoreV1().Nodes().Delete(t.Context(), "win-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.PowerOn()
	eventually(t, "registering again", func() bool {
		node := w.node(t)
		return node != nil && node.Annotations[contract.CertificateEndAnnotation] != ""
	})
	// The service that cleans the host is killed at its first start.
	w.life.Store(&mortal{at: 3})
	w.release(t)
	eventually(t, "beginning to clean", func() bool { return w.life.Load().calls.Load() >= 3 })
	w.life.Store(nil)
	eventually(t, "cleaning", func() bool {
		_, err := w.Host().Services.Get(t.Context(), contract.ServiceCleanup)
		there, _ := winos.Exists(w.Host().Files, contract.DirK)
		return errors.Is(err, winos.ErrNotFound) && !there
	})
	w.PowerCut()
	w.PowerOn()
	for _, line := range sim.Diff(w.fresh, w.Snapshot(), contract.DirLog, w.uploaded, contract.RPCDir) {
		t.Error(line)
	}
	if there, err := winos.Exists(w.Host().Files, w.uploaded); err != nil || there {
		t.Errorf("the copy of the daemon still exists: %t, %v", there, err)
	}
}

// beginCleaning releases a host. Its daemon starts the service that cleans the host, but this service hangs.
func (w *world) beginCleaning(t *testing.T) {
	t.Helper()
	began := make(chan struct{})
	w.life.Store(&mortal{at: 3, hold: func(ctx context.Context) {
		close(began)
		<-ctx.Done()
	}})
	w.release(t)
	await(t, "beginning to clean", began)
	w.life.Store(nil)
}

const takenAway = "another call has ended the cleaning of this host"

// If the host is wanted again, a verb ends the cleaning. The daemon must then continue its work.
func TestADaemonHoldsItsHostAgainWhenItsCleaningWasTakenAway(t *testing.T) {
	t.Parallel()
	w := joinedWorld(t)
	w.beginCleaning(t)
	w.mark(t, "null")
	// The daemon looks at the service after the service was stopped and before it is deleted.
	w.life.Store(&mortal{deleting: func(name string) {
		eventually(t, "the daemon to look", func() bool {
			found, err := w.Host().Services.Get(t.Context(), name)
			return err == nil && found.State == winos.ServiceRunning || strings.Contains(journal(t, w.rig), takenAway)
		})
	}})
	must(t, call[contract.ReceiveAnswer](t, w.rig, contract.VerbReceive, send(t, w.Host().Files, w.Home(), nil)))
	w.annotate(t, fmt.Sprintf("%q:null", contract.RevisionAnnotation))
	w.holds(t, w.desired.Revision)
	_, err := w.Host().Services.Get(t.Context(), contract.ServiceCleanup)
	if !errors.Is(err, winos.ErrNotFound) {
		t.Errorf("the cleaning was started again: %v", err)
	}
}

// The operator has forgotten the host, and its Node is deleted, so the daemon gets no further request. If the
// cleaning can't be started, the daemon must try again.
func TestAReleasedHostIsCleanedAlthoughItsCleaningCouldNotBeStartedForAWhile(t *testing.T) {
	t.Parallel()
	w := joinedWorld(t)
	w.beginCleaning(t)
	if err := w.admin.CoreV1().Nodes().Delete(t.Context(), "win-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.FailService(contract.ServiceCleanup, true)
	if err := w.Kill(service(t, w.rig, contract.ServiceCleanup).PID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "failing to start it", func() bool {
		return strings.Contains(journal(t, w.rig), "this host can't be cleaned now")
	})
	w.FailService(contract.ServiceCleanup, false)
	eventually(t, "cleaning", func() bool {
		there, err := winos.Exists(w.Host().Files, contract.DirK)
		return err == nil && !there
	})
	if strings.Contains(journal(t, w.rig), takenAway) {
		t.Error("the daemon mistook a failed start for a verb that ended the cleaning")
	}
}
