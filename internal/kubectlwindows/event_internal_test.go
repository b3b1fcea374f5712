package kubectlwindows

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
)

// endless is a client that returns a part of an endless list of events.
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

// overloaded is a client of an API server that refuses requests for WindowsInstances because it is overloaded.
type overloaded struct{ client.Client }

func (overloaded) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if nodes, is := list.(*corev1.NodeList); is {
		nodes.Items = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "win-1", Annotations: map[string]string{
			contract.InstanceAnnotation: "ns/a"}}}}
		return nil
	}
	return apierrors.NewTooManyRequests("busy", 1)
}

func (overloaded) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewTooManyRequests("busy", 1)
}

// If WindowsInstances can't be read, the diagnosis must not call a node an orphan.
func TestWhereInstancesAreRefusedNoNodeIsAnOrphan(t *testing.T) {
	t.Parallel()
	s, err := (&reader{Client: overloaded{}, now: time.Now}).snapshot(t.Context(), true)
	if err != nil || len(s.Nodes) != 1 || len(s.Unread) != 3 {
		t.Fatalf("%v, %+v", err, s)
	}
	for _, f := range diagnosis.OfHost(nil, &s.Nodes[0], s, nil).Findings {
		if f.Reason == string(contract.ReasonNodeOrphaned) {
			t.Errorf("%+v", f)
		}
	}
}

// A daemon may create as many events as the API server allows. The command must end even so, and report that it didn't
// read all events.
func TestEventsWithoutEndAreCutAndThatIsSaid(t *testing.T) {
	t.Parallel()
	var s diagnosis.Snapshot
	all := &endless{}
	got := (&reader{Client: all}).events(t.Context(), &s, "Node", "", "win-1")
	if len(got) != maxListed || all.asked != 1 {
		t.Errorf("%d events in %d requests", len(got), all.asked)
	}
	if len(s.Unread) != 1 || !strings.Contains(s.Unread[0], "events of Node win-1: only the first 5000 were read") {
		t.Errorf("%q", s.Unread)
	}
}
