package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// Baseline contains all objects of a control plane at one moment. Restore returns the control plane to this state, so
// that the next test can use it. This takes a second, while a start takes ten seconds of processor time.
type Baseline struct {
	api     dynamic.Interface
	kinds   []schema.GroupVersionResource
	objects map[reference]*unstructured.Unstructured
}

// reference identifies one object.
type reference struct {
	kind            schema.GroupVersionResource
	namespace, name string
}

func (r reference) String() string {
	return fmt.Sprintf("%s %s/%s", r.kind.GroupResource(), r.namespace, r.name)
}

// If no object changes for settleInterval, a control plane counts as settled.
const settleInterval = 300 * time.Millisecond

// restoreTimeout limits Restore. A namespace with content takes the longest, some seconds.
const restoreTimeout = time.Minute

// Baseline reads all current objects of all kinds of the API server. If kinds are added later, Restore deletes their
// CRDs.
func (c *Cluster) Baseline(ctx context.Context) (*Baseline, error) {
	server, err := discovery.NewDiscoveryClientForConfig(c.admin)
	if err != nil {
		return nil, fmt.Errorf("making a discovery client: %w", err)
	}
	lists, err := server.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("listing the kinds of objects: %w", err)
	}
	b := &Baseline{}
	if b.api, err = dynamic.NewForConfig(c.admin); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("reading the kinds of objects: %w", err)
		}
		for _, kind := range list.APIResources {
			if !changesByItself(kind.Name) {
				b.kinds = append(b.kinds, version.WithResource(kind.Name))
			}
		}
	}
	return b, b.settle(ctx)
}

// settle reads all objects repeatedly until nothing changes, because controllers may still change new objects.
func (b *Baseline) settle(ctx context.Context) error {
	settled := func(ctx context.Context) (is bool, err error) {
		before := b.objects
		if b.objects, err = b.list(ctx); err != nil {
			return false, err
		}
		return maps.EqualFunc(before, b.objects, isSame), nil
	}
	err := wait.PollUntilContextTimeout(ctx, settleInterval, restoreTimeout, true, settled)
	if err != nil {
		return fmt.Errorf("waiting until the control plane settles: %w", err)
	}
	return nil
}

// changesByItself reports whether controllers derive the objects of a kind from other objects, such as endpoints from
// Services. Events are deleted separately.
func changesByItself(resource string) bool {
	return slices.Contains([]string{"events", "endpoints"}, resource)
}

// list reads all objects.
func (b *Baseline) list(ctx context.Context) (map[reference]*unstructured.Unstructured, error) {
	all := map[reference]*unstructured.Unstructured{}
	for _, kind := range b.kinds {
		list, err := b.api.Resource(kind).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // the CRD of the kind was deleted
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.GroupResource(), err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			all[reference{kind, object.GetNamespace(), object.GetName()}] = object
		}
	}
	return all, nil
}

// Restore deletes new objects, restores changed and deleted objects, and returns when the control plane has its
// original state. The error names the remaining differences. Other clients must not write during Restore. It is
// idempotent.
func (b *Baseline) Restore(ctx context.Context) error {
	var differences []string
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, restoreTimeout, true,
		func(ctx context.Context) (bool, error) {
			now, err := b.restoreOnce(ctx)
			if ctx.Err() == nil { // otherwise, the read may be incomplete
				differences, last = now, err
			}
			return len(now) == 0 && err == nil, nil
		})
	if err != nil {
		return errors.Join(fmt.Errorf("the control plane was not restored: %w: %s", err,
			strings.Join(differences[:min(len(differences), 20)], "; ")), last)
	}
	return b.forget(ctx)
}

// forget deletes the events in the namespaces of the baseline.
func (b *Baseline) forget(ctx context.Context) error {
	events := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	for ref := range b.objects {
		if ref.kind.Resource != "namespaces" {
			continue
		}
		err := b.api.Resource(events).Namespace(ref.name).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("deleting the events in namespace %s: %w", ref.name, err)
		}
	}
	return nil
}

// restoreOnce returns the differences and starts to correct them.
func (b *Baseline) restoreOnce(ctx context.Context) (differences []string, err error) {
	now, err := b.list(ctx)
	if err != nil {
		return nil, err
	}
	var all []error
	for _, ref := range slices.SortedFunc(maps.Keys(now), later) {
		object, before := now[ref], b.objects[ref]
		switch {
		case before == nil:
			differences = append(differences, ref.String()+" is new")
			all = append(all, b.remove(ctx, ref, object))
		case !isSame(before, object):
			differences = append(differences, ref.String()+" has changed")
			all = append(all, b.put(ctx, ref, before, object))
		}
	}
	for ref, before := range b.objects {
		if now[ref] == nil {
			differences = append(differences, ref.String()+" is gone")
			all = append(all, b.put(ctx, ref, before, nil))
		}
	}
	return differences, errors.Join(all...)
}

// The function later sorts namespaces and CRDs after their content, because empty ones are deleted faster.
func later(a, b reference) int {
	weight := func(r reference) int {
		switch r.kind.Resource {
		case "namespaces", "customresourcedefinitions":
			return 1
		}
		return 0
	}
	if d := weight(a) - weight(b); d != 0 {
		return d
	}
	return strings.Compare(a.String(), b.String())
}

// remove deletes an object immediately and removes its finalizers, because the controllers for the finalizers aren't
// running.
func (b *Baseline) remove(ctx context.Context, ref reference, object *unstructured.Unstructured) error {
	at := b.at(ref)
	if len(object.GetFinalizers()) > 0 && ref.kind.Resource != "customresourcedefinitions" {
		_, err := at.Patch(ctx, ref.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("removing the finalizers of %s: %w", ref, err)
		}
	}
	if object.GetDeletionTimestamp() != nil && ref.kind.Resource != "pods" {
		return nil
	}
	now, policy := int64(0), metav1.DeletePropagationBackground
	err := at.Delete(ctx, ref.name, metav1.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &policy})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting %s: %w", ref, err)
	}
	return nil
}

// put restores an object. `now` is the current object, or nil if it was deleted.
func (b *Baseline) put(ctx context.Context, ref reference, before, now *unstructured.Unstructured) error {
	want := before.DeepCopy()
	want.SetManagedFields(nil)
	want.SetUID("")
	want.SetResourceVersion("")
	var err error
	if now == nil {
		now, err = b.at(ref).Create(ctx, want, metav1.CreateOptions{})
	} else {
		want.SetResourceVersion(now.GetResourceVersion())
		now, err = b.at(ref).Update(ctx, want, metav1.UpdateOptions{})
	}
	if status, has := before.Object["status"]; err == nil && has && !equality.Semantic.DeepEqual(status,
		now.Object["status"]) {
		want.SetResourceVersion(now.GetResourceVersion())
		_, err = b.at(ref).UpdateStatus(ctx, want, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("restoring %s: %w", ref, err)
	}
	return nil
}

func (b *Baseline) at(ref reference) dynamic.ResourceInterface {
	if ref.namespace == "" {
		return b.api.Resource(ref.kind)
	}
	return b.api.Resource(ref.kind).Namespace(ref.namespace)
}

// isSame reports whether an object still has its earlier state. It ignores what Kubernetes changes by itself.
func isSame(before, now *unstructured.Unstructured) bool {
	if before.GetKind() == "Lease" {
		return now.GetDeletionTimestamp() == nil // another client holds a finalizer
	}
	return equality.Semantic.DeepEqual(essence(before), essence(now))
}

// essence returns an object without the fields that change with each write.
func essence(object *unstructured.Unstructured) map[string]any {
	out := object.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	switch out.GetKind() {
	case "ServiceAccount":
		delete(out.Object, "secrets")
	case "CustomResourceDefinition", "APIService", "FlowSchema", "PriorityLevelConfiguration",
		"ValidatingAdmissionPolicy", "Deployment", "DaemonSet", "ReplicaSet":
		delete(out.Object, "status") // controllers write the status, which contains times
	}
	return out.Object
}
