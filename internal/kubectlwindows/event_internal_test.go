package kubectlwindows

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/diagnosis"
)

// endless has events without end.
type endless struct {
	client.Client
	asked int
}

func (e *endless) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	e.asked++
	o := (&client.ListOptions{}).ApplyOptions(options)
	list.SetContinue("more")
	list.(*corev1.EventList).Items = make([]corev1.Event, o.Limit)
	return nil
}

// A daemon may make as many events as the API server lets it.
func TestEventsWithoutEndAreCutAndThatIsSaid(t *testing.T) {
	t.Parallel()
	var s diagnosis.Snapshot
	all := &endless{}
	got := (&reader{Client: all}).events(t.Context(), &s, "Node", "", "win-1")
	if len(got) != maxEvents || all.asked != maxEventPages {
		t.Errorf("%d events in %d requests", len(got), all.asked)
	}
	if len(s.Unread) != 1 || !strings.Contains(s.Unread[0], "events of Node win-1: only the first 5000 were read") {
		t.Errorf("%q", s.Unread)
	}
}
