package settings

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
)

// inForce returns settings that differ from the defaults.
func inForce() *v1alpha1.WindowsMachineConfig {
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	config.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(3))
	return config
}

// remembered returns the Secret in which the publisher stores the settings.
func remembered(t *testing.T) *corev1.Secret {
	t.Helper()
	data, err := cluster.Memory(inForce(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: contract.MemorySecret}, Data: data}
}

func TestA80_SettingsThatAreDeletedAreRestoredAsTheyWere(t *testing.T) {
	t.Parallel()
	r := newRig(t, remembered(t))
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	r.now = func() time.Time { return now }
	key := types.NamespacedName{Name: contract.MachineConfigObject}
	look := func() time.Duration {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	said := func() string {
		t.Helper()
		recorder, ok := r.events.(*events.FakeRecorder)
		if !ok || len(recorder.Events) != 1 {
			t.Fatalf("%d events", len(recorder.Events))
		}
		return <-recorder.Events
	}
	if again := look(); again != restoreAfter {
		t.Errorf("reconciled again after %s", again)
	}
	if text := said(); !strings.Contains(text, "W939") || !strings.Contains(text, "WindowsMachineConfig cluster does not exist") {
		t.Errorf("the event is %q", text)
	}
	now = now.Add(restoreAfter - time.Second)
	if again := look(); again != time.Second {
		t.Errorf("reconciled again after %s", again)
	}
	if err := r.api.Get(t.Context(), key, &v1alpha1.WindowsMachineConfig{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a user who replaces the object can't create it: %v", err)
	}
	now = now.Add(time.Second)
	look()
	config := &v1alpha1.WindowsMachineConfig{}
	if err := r.api.Get(t.Context(), key, config); err != nil || config.Spec.Rollout.MaxUnavailable.IntValue() != 3 {
		t.Fatalf("the restored settings are %+v, %v", config.Spec, err)
	}
	if text := said(); !strings.Contains(text, "restored") {
		t.Errorf("the event is %q", text)
	}
	// After the settings exist again, the next deletion must again be tolerated for the full minute.
	look()
	if err := r.api.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if again := look(); again != restoreAfter {
		t.Errorf("after another deletion, reconciled again after %s", again)
	}
}

func TestA80_AnOperatorThatStartsWhileTheSettingsAreDeletedCreatesNoDefaults(t *testing.T) {
	t.Parallel()
	c := claimClient(t, func() *corev1.Secret { s := remembered(t); s.Namespace = "here"; return s }())
	if err := Claim(t.Context(), c, "here", time.Now); err != nil {
		t.Fatal(err)
	}
	config := &v1alpha1.WindowsMachineConfig{}
	if err := c.Get(t.Context(), types.NamespacedName{Name: contract.MachineConfigObject}, config); !apierrors.IsNotFound(err) {
		t.Errorf("the operator created %+v, %v", config.Spec, err)
	}
}
