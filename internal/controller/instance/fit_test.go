package instance

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// A kubelet may write texts of any length into its own Node, up to the limit of the API server.
func TestA51_WhatANodeSaysOfItselfFitsIntoTheStatusAndIsCutWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.join(t, 1)
	honest, err := json.Marshal(r.get(t, 1).Status)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ü", 100_000)
	r.changes(t, 1, func(n *corev1.Node) {
		for _, key := range []string{contract.RevisionAnnotation, contract.ApplyStatusAnnotation,
			contract.StageStatusAnnotation, contract.BootIDAnnotation, contract.RebootRequiredAnnotation,
			contract.CertificateEndAnnotation} {
			n.Annotations[key] = long
		}
		n.Status.NodeInfo.KubeletVersion = long
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].Message, n.Status.Conditions[i].Reason = long, long
		}
	})
	for range 5 {
		r.clock = r.clock.Add(10 * time.Minute)
		r.reconcile(t, 1)
		status, err := json.Marshal(r.get(t, 1).Status)
		if err != nil {
			t.Fatal(err)
		}
		if len(status) > len(honest)+3*maxMessage {
			t.Fatalf("the status has %d bytes instead of %d", len(status), len(honest))
		}
		if message := r.get(t, 1).Status.Message(); !utf8.ValidString(message) || len(message) > 2*maxWhy {
			t.Errorf("message of %d bytes", len(message))
		}
	}
}
