package kubectlwindows_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// checksOf returns the WindowsInstances that only check a host.
func checksOf(ctx context.Context, t *testing.T, at *terminal) (all []v1alpha1.WindowsInstance) {
	t.Helper()
	var list v1alpha1.WindowsInstanceList
	if err := at.List(ctx, &list, client.InNamespace(contract.OperatorNamespace)); err != nil {
		t.Error(err)
	}
	for _, i := range list.Items {
		if i.Spec.PreflightOnly {
			all = append(all, i)
		}
	}
	return all
}

// answer simulates the operator. It writes a result for each host to check.
func answer(ctx context.Context, t *testing.T, at *terminal) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if ctx.Err() != nil {
			return
		}
		for _, i := range checksOf(t.Context(), t, at) {
			if len(i.Status.Conditions) > 0 {
				continue
			}
			state, reason := metav1.ConditionTrue, contract.ReasonPreflightOnly
			if i.Spec.Address == "10.9.0.2" {
				state, reason = metav1.ConditionFalse, contract.ReasonKeyRefused
			}
			i.Status.Phase = v1alpha1.PhasePreflight
			meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionProgressing,
				Status: metav1.ConditionFalse, Reason: string(reason),
				Message: contract.NewProblem(reason, "it says \x1b]0;owned\a").Explain()})
			meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionPreflightPassed,
				Status: state, Reason: string(reason)})
			if err := client.IgnoreNotFound(at.Status().Update(t.Context(), &i)); err != nil {
				t.Error(err)
			}
		}
	}
}

// failingReads simulates a load balancer that sometimes can't reach an API server. A read that fails must not count as
// the result of a check.
func failingReads(t *testing.T, at *terminal) {
	t.Helper()
	var reads atomic.Int32
	ofInstance := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/windowsinstances/")
	}
	once := at.behind(t, &front{fail: func(r *http.Request) bool { return ofInstance(r) && reads.Add(1) == 1 }})
	once.expect(t, 0, []string{"10.9.0.1  yes"}, "preflight", "10.9.0.1", "--username", "Administrator")
	if reads.Load() < 2 {
		t.Errorf("the result was read %d times", reads.Load())
	}
	at.behind(t, &front{fail: ofInstance}).expect(t, 1, []string{"did not end within 1s", "unable to handle the request"},
		"preflight", "10.9.0.1", "--username", "Administrator", "--timeout", "1s")
	reads.Store(0)
	at.behind(t, &front{refuse: func(r *http.Request) bool { return ofInstance(r) && reads.Add(1) > 0 }}).expect(t, 1,
		[]string{"reading WindowsInstance", "refused"}, "preflight", "10.9.0.1", "--username", "Administrator")
	if reads.Load() != 1 {
		t.Errorf("without the right to read, there were %d reads", reads.Load())
	}
}

func preflightCommand(t *testing.T, at *terminal) {
	t.Helper()
	none := func(when string) {
		t.Helper()
		if left := checksOf(t.Context(), t, at); len(left) > 0 {
			t.Errorf("%s: %d instances are left", when, len(left))
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer(ctx, t, at)
	}()
	out := at.expect(t, 2, []string{"10.9.0.1  yes", "10.9.0.2  no", "W202 KeyRefused", "fix: Add the public key"},
		"preflight", "10.9.0.1", "10.9.0.2", "--username", "Administrator")
	if strings.ContainsAny(out, "\x1b\a") {
		t.Errorf("the output has control characters for terminals: %q", out)
	}
	at.expect(t, 0, []string{`"fits": true`}, "preflight", "10.9.0.1", "--username", "Administrator", "-o", "json")
	none("afterwards")
	failingReads(t, at)
	none("after reads that failed")
	stop()
	<-done

	at.expect(t, 1, []string{"the operator did not start the check"}, "preflight", "10.9.0.3", "--username", "u", "--timeout", "1s")
	none("without an operator")
	at.as(t, "nobody").expect(t, 1, []string{"cannot create resource"}, "preflight", "10.9.0.3", "--username", "u")
	at.expect(t, 1, []string{"spec.address"}, "preflight", "not an address", "--username", "u")
	at.expect(t, 1, []string{`"username" not set`}, "preflight", "10.9.0.3")

	// Simulate a user who presses Ctrl-C while the command waits.
	interrupted, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var created atomic.Bool
	waits := at.behind(t, &front{before: func(r *http.Request) {
		if r.Method == http.MethodPost {
			created.Store(true)
			// An old API server may not know the field for a check. If the server dropped this field, the host would
			// join.
			if got := r.URL.Query().Get("fieldValidation"); got != metav1.FieldValidationStrict {
				t.Errorf("the validation of unknown fields is %q", got)
			}
		}
		if created.Load() && r.Method == http.MethodGet {
			interrupt()
		}
	}})
	if code, _, errOut := waits.run(interrupted, "", "preflight", "10.9.0.4", "--username", "u"); code != 1 ||
		!strings.Contains(errOut, "interrupted") {
		t.Errorf("%d %s", code, errOut)
	}
	none("after Ctrl-C")

	// If the command can't delete an instance, it must print the name of the instance.
	var stuck atomic.Bool
	stuck.Store(true)
	keeps := at.behind(t, &front{refuse: func(r *http.Request) bool { return r.Method == http.MethodDelete && stuck.Load() }})
	keeps.expect(t, 1, []string{"could not be deleted; delete it", "WindowsInstance preflight-"}, "preflight", "10.9.0.5", "--username",
		"u", "--timeout", "1s")
	for _, left := range checksOf(t.Context(), t, at) {
		if err := at.Delete(t.Context(), &left); err != nil {
			t.Error(err)
		}
	}

	one := instance("10.9.0.6", nil, v1alpha1.WindowsInstanceStatus{})
	one.Spec.PreflightOnly = true
	if err := at.Create(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	one.Spec.PreflightOnly = false
	if err := at.Update(t.Context(), one); err == nil || !strings.Contains(err.Error(), "preflightOnly is immutable") {
		t.Errorf("the check turned into a join: %v", err)
	}
	if err := at.Delete(t.Context(), one); err != nil {
		t.Error(err)
	}
}
