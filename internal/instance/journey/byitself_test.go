package journey

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host/callhost"
	"github.com/windows-nodes/wmco/internal/instance/credential"
)

// reached dials a host that joins by itself. The host has reported the boot ID. If boot is empty, the host has no
// Secret for calls.
func reached(t *testing.T, instance *v1alpha1.WindowsInstance, session *Session, boot string, now time.Time) Outcome {
	t.Helper()
	instance.UID, instance.Spec.ByItself = "uid", &v1alpha1.ByItself{}
	builder := fake.NewClientBuilder()
	if boot != "" {
		report, err := json.Marshal(contract.CallHost{BootID: boot})
		if err != nil {
			t.Fatal(err)
		}
		builder = builder.WithObjects(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: contract.CallSecretPrefix + "uid"},
			Data:       map[string][]byte{contract.CallHostField: report}})
	}
	c := builder.Build()
	access := &Access{&Options{Client: c, Namespace: "ns", Calls: callhost.Calls{Client: c, Namespace: "ns"},
		Invitations: credential.Issuer{Client: kubefake.NewClientset(), Namespace: "ns"},
		Slots:       NewSlots(1, func(types.NamespacedName) {}), Now: func() time.Time { return now }}}
	return access.Dial(t.Context(), instance, session)
}

// If an instance is being removed, a join command for its host would be useless, because the host gets no certificate
// any more.
func TestA86_ARemovalWithoutAHostSaysSo(t *testing.T) {
	t.Parallel()
	instance := &v1alpha1.WindowsInstance{}
	instance.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if outcome := reached(t, instance, &Session{}, "", time.Now()); !outcome.IsFailed() ||
		outcome.Problem.Reason != contract.ReasonHostSilent {
		t.Errorf("%+v", outcome)
	}
}

// The certificate of a host that has joined is still valid, so a second host must not get a command.
func TestA85_ADeletedSecretOfCallsCausesNoSecondCommand(t *testing.T) {
	t.Parallel()
	instance := &v1alpha1.WindowsInstance{Status: v1alpha1.WindowsInstanceStatus{HostKey: contract.HostKeyType + "uid"}}
	if outcome := reached(t, instance, &Session{}, "", time.Now()); !outcome.IsWaiting() ||
		outcome.Problem.Reason != contract.ReasonHostSilent {
		t.Errorf("%+v", outcome)
	}
}

func TestA86_AHostThatDoesNotRebootIsAskedAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		since time.Duration
		boot  string
		done  bool
	}{
		"it has not rebooted yet":      {time.Minute, "boot-1", false},
		"it has rebooted":              {time.Minute, "boot-2", true},
		"it does not reboot":           {RebootLimit + time.Minute, "boot-1", true},
		"it has rebooted after a time": {RebootLimit + time.Minute, "boot-2", true},
	} {
		instance := &v1alpha1.WindowsInstance{}
		outcome := reached(t, instance, &Session{RebootTime: now.Add(-c.since), RebootedBoot: "boot-1"}, c.boot, now)
		if outcome.IsDone() != c.done || !c.done && outcome.Problem.Reason != contract.ReasonRebooting {
			t.Errorf("%s: %+v", name, outcome)
		}
	}
}
