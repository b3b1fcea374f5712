package config_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/mirror"
)

// eventOf returns an event of a Node's daemon about pulls.
func eventOf(node string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: node + "."},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)},
		Reason:         mirror.ReasonFallback, Type: corev1.EventTypeWarning, Message: "Skipped: m.io",
		Source:              corev1.EventSource{Component: contract.ServiceDaemon, Host: node},
		ReportingController: contract.ServiceDaemon, ReportingInstance: node,
	}
}

// tell creates an event of win-a's daemon after a change.
func tell(change func(*corev1.Event)) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		event := eventOf("win-a")
		change(event)
		namespace := event.Namespace
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		_, err := c.CoreV1().Events(namespace).Create(ctx, event, metav1.CreateOptions{})
		return err
	}
}

// loads returns large managed fields that own no fields of an object. If the API server knows the version, it stores
// them unchanged.
func loads(apiVersion string) map[string][]metav1.ManagedFieldsEntry {
	entry := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	all := map[string][]metav1.ManagedFieldsEntry{
		"one long name": {entry("x", `{"f:`+strings.Repeat("x", 900_000)+`":{}}`)},
		"one of 70 KiB": {entry("x", `{"f:`+strings.Repeat("x", 70<<10)+`":{}}`)},
		// A few levels with long names, because with thousands of levels or managers, the API server itself needs
		// half a minute.
		"a deep field": {entry("x", strings.Repeat(`{"f:`+strings.Repeat("x", 1000)+`":`, 100)+"{}"+strings.Repeat("}", 100))},
	}
	var fields, managers []string
	for i := range 9000 {
		fields = append(fields, fmt.Sprintf(`"f:%d":{}`, i))
		managers = append(managers, fmt.Sprintf("%0100d", i))
	}
	all["many fields"] = []metav1.ManagedFieldsEntry{entry("x", `{"f:metadata":{"f:annotations":{`+strings.Join(fields, ",")+`}}}`)}
	for _, manager := range managers[:400] {
		all["many managers"] = append(all["many managers"], entry(manager, `{"f:metadata":{}}`))
	}
	return all
}

// Other clients can add many managed fields to a Node. The policy's cost grows with them, and an expression that is
// too expensive refuses the request. So the daemon must not be blocked.
func TestA34_ManagedFieldsOfOthersStopNoDaemon(t *testing.T) {
	t.Parallel()
	lab := common(t)
	admin := connect(t, lab.Admin())
	a, b := two(t, admin)
	daemon := as(t, lab, contract.DaemonUserPrefix+a, contract.DaemonGroup)
	until(t, func(ctx context.Context) bool {
		return refusedByPolicy(annotate(b, contract.RevisionAnnotation)(ctx, daemon))
	})
	var fields []string
	for i := range 3000 {
		fields = append(fields, fmt.Sprintf(`"f:label-%d":{}`, i))
	}
	load := []metav1.ManagedFieldsEntry{{Manager: "labels", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1",
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{` +
			strings.Join(fields, ",") + `}}}`)}}
	if err := patch(a, withManaged(load))(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	node, err := admin.CoreV1().Nodes().Get(t.Context(), a, metav1.GetOptions{})
	if err != nil || node.Size() < 50<<10 {
		t.Fatalf("%d bytes: %v", node.Size(), err)
	}
	for _, key := range []string{contract.RevisionAnnotation, contract.BootIDAnnotation} {
		if err := annotate(a, key)(t.Context(), daemon); err != nil {
			t.Error(err)
		}
	}
}

// eventsOfDaemons returns events that daemons may create.
func eventsOfDaemons() map[string]attempt {
	all := map[string]attempt{}
	for _, reason := range []string{mirror.ReasonFallback, mirror.ReasonUnavailable, mirror.ReasonRefused} {
		all["tells of "+reason] = tell(func(e *corev1.Event) { e.Reason = reason })
	}
	return all
}

// eventsOfNoDaemon returns events that daemons must not create, although they may create events.
func eventsOfNoDaemon() map[string]attempt {
	about := func(change func(*corev1.ObjectReference)) attempt {
		return tell(func(e *corev1.Event) { change(&e.InvolvedObject) })
	}
	return map[string]attempt{
		"tells of another Node": tell(func(e *corev1.Event) { *e = *eventOf("win-b") }),
		"tells of a Node whose name begins": about(func(o *corev1.ObjectReference) {
			o.Name, o.UID = "win-ab",
				"win-ab"
		}),
		"tells of an object of another UID":    about(func(o *corev1.ObjectReference) { o.UID = "win-b" }),
		"tells of another Node by its UID":     about(func(o *corev1.ObjectReference) { o.Name = "win-b" }),
		"tells of a kind that is no Node":      about(func(o *corev1.ObjectReference) { o.Kind = "Pod" }),
		"tells of another API's Node":          about(func(o *corev1.ObjectReference) { o.APIVersion = "example.com/v1" }),
		"tells as kubelet":                     tell(func(e *corev1.Event) { e.Source.Component = "kubelet" }),
		"tells as another host":                tell(func(e *corev1.Event) { e.Source.Host = "win-b" }),
		"tells as the operator":                tell(func(e *corev1.Event) { e.ReportingController = "wmco" }),
		"creates an event without an identity": tell(func(e *corev1.Event) { e.Source = corev1.EventSource{} }),
		"tells of something else":              tell(func(e *corev1.Event) { e.Reason = "NodeNotReady" }),
		"A55 tells at length":                  tell(func(e *corev1.Event) { e.Message = strings.Repeat("x", 1025) }),
		"A55 hides a load in an annotation": tell(func(e *corev1.Event) {
			e.Annotations = map[string]string{"a": strings.Repeat("x", 200_000)}
		}),
		"A55 hides a load in labels":    tell(func(e *corev1.Event) { e.Labels = map[string]string{"a": "b"} }),
		"A55 hides a load in an action": tell(func(e *corev1.Event) { e.Action = strings.Repeat("x", 129) }),
		"A55 hides a load in a field path": about(func(o *corev1.ObjectReference) {
			o.FieldPath = strings.Repeat("x", 1_000_000)
		}),
		"A55 hides a load in a version": about(func(o *corev1.ObjectReference) {
			o.ResourceVersion = strings.Repeat("x", 1_000_000)
		}),
		"A55 stays by a finalizer": tell(func(e *corev1.Event) { e.Finalizers = []string{"example.com/stay"} }),
		"A55 has an owner": tell(func(e *corev1.Event) {
			e.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: strings.Repeat("x", 200), UID: "x"}}
		}),
		"A55 counts in a series":             tell(func(e *corev1.Event) { e.Series = &corev1.EventSeries{Count: 2} }),
		"A55 hides a load in managed fields": tell(func(e *corev1.Event) { e.ManagedFields = loads("v1")["one long name"] }),
		"A55 hides a load in many managers":  tell(func(e *corev1.Event) { e.ManagedFields = loads("v1")["many managers"] }),
		"tells of a relation": tell(
			func(e *corev1.Event) { e.Related = &corev1.ObjectReference{Kind: "Node", Name: "win-b"} }),
	}
}

// rightsThatEventsNeedNot returns requests about events that daemons have no right for.
func rightsThatEventsNeedNot() map[string]attempt {
	return map[string]attempt{
		"tells in our namespace": tell(func(e *corev1.Event) {
			e.Namespace, e.InvolvedObject.Namespace = contract.OperatorNamespace, contract.OperatorNamespace
		}),
		"tells in the newer form": tellEvent("win-a"),
		"reads events": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
			return err
		},
		"removes events": func(ctx context.Context, c kubernetes.Interface) error {
			return c.CoreV1().Events(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{},
				metav1.ListOptions{})
		},
	}
}
