package program_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/lab/sim/program"
)

// If the controller manager is slow or restarts, it can miss renewals of the lease. It then marks the Node as unknown,
// although kubelet is running. kubelet must report its status again.
func TestKubeletReportsItsStatusAgainWhenTheClusterHasMarkedItsNodeAsUnknown(t *testing.T) {
	t.Parallel()
	b, admin := join(t, "unknown", program.Options{})
	b.makeReady(t, admin)
	patch := []byte(`{"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}`)
	if _, err := admin.CoreV1().Nodes().PatchStatus(t.Context(), b.node, patch); err != nil {
		t.Fatal(err)
	}
	b.expectReady(t, admin, corev1.ConditionTrue)
}
