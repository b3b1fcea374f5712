package journey_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/windows-nodes/wmco/internal/instance/journey"
)

func TestOnlyARefusedWriteIsTriedAgainLate(t *testing.T) {
	t.Parallel()
	why, nodes := errors.New("why"), corev1.Resource("nodes")
	for name, test := range map[string]struct {
		err  error
		late bool
	}{
		"forbidden":               {apierrors.NewForbidden(nodes, "win-a", why), true},
		"invalid":                 {apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "win-a", nil), true},
		"denied by a webhook":     {apierrors.NewBadRequest("no"), true},
		"a webhook does not work": {apierrors.NewInternalError(why), true},
		"timeout":                 {apierrors.NewTimeoutError("slow", 0), false},
		"timeout of the server":   {apierrors.NewServerTimeout(nodes, "patch", 0), false},
		"too many requests":       {apierrors.NewTooManyRequests("busy", 1), false},
		"unavailable":             {apierrors.NewServiceUnavailable("away"), false},
		"etcd": {&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500,
			Message: "etcdserver: request timed out"}}, false},
		"no answer": {why, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := journey.RetryWrite(fmt.Errorf("cordoning: %w", test.err)).After
			if late := after > 10*time.Second; late != test.late || after < journey.CallRetry {
				t.Errorf("retried after %s", after)
			}
		})
	}
}
