package userdata

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/internal/contract"
)

// The hosts of Machines that were created before the publication of the host key are trusted at first contact. If the
// recorded time of publication were in the future, the hosts of all Machines would be trusted.
func TestA09_ATimeOfAClockThatWasAheadIsPutRight(t *testing.T) {
	t.Parallel()
	right, secret := time.Now().UTC().Truncate(time.Second), &corev1.Secret{}
	want := wanted{script: "$hostKeyLine = 'ssh-ed25519 AAAA'", hostKey: "ssh-ed25519 AAAA"}
	publish := func(at time.Time) time.Time {
		t.Helper()
		if !want.in(secret, at) {
			want.into(secret, at)
		}
		since, published := hostKeySince(secret, want.hostKey)
		if !published {
			t.Fatal("the time of publication is missing")
		}
		return since
	}
	if since := publish(right.AddDate(0, 0, 30)); !since.After(right) {
		t.Fatalf("with a clock that is ahead, the time of publication is %s", since)
	}
	for _, later := range []time.Duration{0, time.Hour} {
		if since := publish(right.Add(later)); !since.Equal(right) {
			t.Errorf("%s after the clock was corrected, the time of publication is %s", later, since)
		}
	}
}

// If someone else manages the user data, it is unknown which key it contains, no matter what its annotation says. So no
// Machine is replaced because its host refuses the current key.
func TestUserDataOfSomebodyElseAuthorizesNoKey(t *testing.T) {
	t.Parallel()
	for manager, want := range map[string]bool{contract.OperatorServiceAccount: true, "somebody": false} {
		live := fake.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: contract.MachineAPINamespace, Name: contract.UserDataSecret,
			Labels:      map[string]string{contract.ManagedByLabel: manager},
			Annotations: map[string]string{contract.PublicKeyHashAnnotation: "h"}}}).Build()
		if got, err := (FirstContact{Live: live}).Authorizes(t.Context(), "h"); got != want || err != nil {
			t.Errorf("managed by %s: %v, %v", manager, got, err)
		}
	}
}
