package program_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/plane"
	"github.com/windows-nodes/wmco/lab/sim/program"
)

func TestKubeletReportsItsStatusAgainAfterAnOutageOfTheAPIServer(t *testing.T) {
	t.Parallel()
	c := plane.Start(t, cluster.Options{Audit: true})
	admin, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	if err := prepareLab(admin); err != nil {
		t.Fatal(err)
	}
	b := joinOn(t, c, admin, "outage", program.Options{LeaseInterval: 200 * time.Millisecond})
	b.makeReady(t, admin)
	reports := func() int {
		n := 0
		for r, err := range cluster.Requests(c.AuditLog) {
			if err == nil && r.User == contract.KubeletUserPrefix+"outage" && r.Verb == "patch" &&
				r.Resource == "nodes" && r.Subresource == "status" {
				n++
			}
		}
		return n
	}
	before := reports()
	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a report", func() error {
		if reports() == before {
			return errWait
		}
		return nil
	})
	b.expectReady(t, admin, corev1.ConditionTrue)
}
