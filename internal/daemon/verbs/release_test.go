package verbs_test

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// release marks the Node as the operator does.
func (w *world) release(t *testing.T) {
	t.Helper()
	config := rest.CopyConfig(w.Admin())
	config.Impersonate = rest.ImpersonationConfig{Groups: []string{"system:masters"},
		UserName: "system:serviceaccount:" + contract.OperatorNamespace + ":" + contract.OperatorServiceAccount}
	operator, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	mark := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, contract.ReleasedAnnotation,
		w.node(t).Annotations[contract.CertificateEndAnnotation])
	if _, err = operator.CoreV1().Nodes().Patch(t.Context(), "win-a", types.MergePatchType, []byte(mark),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A host whose removal was forced while it was off comes back: its Node was deleted, and kubelet
// registers it again.
func TestAHostThatWasLetGoByForceCleansItselfWhenItComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.approve(t)
	w.join(t)
	w.holds(t, w.desired.Version)
	w.PowerCut()
	if err := w.admin.CoreV1().Nodes().Delete(t.Context(), "win-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.PowerOn()
	eventually(t, "registering again", func() bool {
		node := w.node(t)
		return node != nil && node.Annotations[contract.CertificateEndAnnotation] != ""
	})
	// The one-shot service dies the first time.
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
	for _, line := range sim.Diff(w.fresh, w.Snapshot(), contract.DirLog, w.planted, contract.ExchangeDir) {
		t.Error(line)
	}
	if there, err := winos.Exists(w.Host().Files, w.planted); err != nil || there {
		t.Errorf("the copy of the daemon stays: %t, %v", there, err)
	}
}
