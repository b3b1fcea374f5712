package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	// managedBy is the value of contract.ManagedByLabel on all objects that runs create. The label runLabel names the
	// run.
	managedBy = "wmco-e2e"
	runLabel  = contract.Prefix + "e2e-run"
	// aliveAnnotation is an annotation of a run's record. Its value is the time of the last renewal, in RFC 3339.
	aliveAnnotation = contract.Prefix + "e2e-alive"

	// longDead: if a record is older than this many times Alive, its run has certainly ended, even if the clocks of the
	// two computers differ.
	longDead = 10
)

// mergePatch creates a merge patch from JSON.
func mergePatch(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }

func (r *run) labels() map[string]string {
	return map[string]string{contract.ManagedByLabel: managedBy, runLabel: r.id}
}

// record returns the ConfigMap that shows that a run is alive.
func (r *run) record() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: managedBy + "-" + r.id,
		Labels: r.labels(), Annotations: map[string]string{aliveAnnotation: time.Now().UTC().Format(time.RFC3339Nano)}}}
}

// begin creates the record of this run, and renews it until stop is called.
func begin(ctx context.Context, r *run) (stop func(), err error) {
	if err = r.client.Create(ctx, r.record()); err != nil {
		return nil, fmt.Errorf("creating the record of this run: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(r.Alive / 4)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := r.record()
			sign := annotated(aliveAnnotation, now.Annotations[aliveAnnotation])
			err := r.client.Patch(ctx, now, mergePatch(sign))
			if err != nil && ctx.Err() == nil {
				r.say("renewing the run's record: %v", err)
			}
		}
	}()
	return func() { cancel(); <-ended }, nil
}

// sweep removes the objects and entries of this run, or of runs that have ended. It returns a list of what it removed.
// It touches only objects with the label and entries with a mark.
func sweep(ctx context.Context, r *run, own bool) (cleaned []string, err error) {
	selected := client.MatchingLabels{contract.ManagedByLabel: managedBy}
	if own {
		selected[runLabel] = r.id
	} else if err = othersEnded(ctx, r); err != nil {
		return nil, err
	}
	keys, err := unlist(ctx, r, func(_ string, m mark) bool { return !own || m.Run == r.id })
	if err != nil {
		return nil, fmt.Errorf("removing entries: %w", err)
	}
	for _, key := range keys {
		r.say("removed the entry %s, waiting until its host is clean", key)
		cleaned = append(cleaned, "entry "+key+" of windows-instances")
	}
	left := gone(ctx, r, keys)
	records := &corev1.ConfigMapList{}
	if err = r.client.List(ctx, records, selected, client.InNamespace(r.Namespace)); err != nil {
		return cleaned, fmt.Errorf("listing records: %w", err)
	}
	for i := range records.Items {
		restored, err := restore(ctx, r, &records.Items[i])
		if left = errors.Join(left, err); restored != "" {
			cleaned = append(cleaned, restored)
		}
	}
	for _, objects := range []client.ObjectList{&certificatesv1.CertificateSigningRequestList{},
		&corev1.NamespaceList{}} {
		removed, err := removeAll(ctx, r, objects, selected)
		cleaned = append(cleaned, removed...)
		left = errors.Join(left, err)
	}
	if left = errors.Join(left, dropList(ctx, r)); left != nil {
		return cleaned, left // keep the record, so that a later run cleans up the rest
	}
	removed, err := removeAll(ctx, r, &corev1.ConfigMapList{}, selected, client.InNamespace(r.Namespace))
	if !own {
		cleaned = append(cleaned, removed...)
	}
	return cleaned, err
}

// removeAll deletes the objects of a kind if they have the label of runs. Exception: windows-instances never has this
// label, even if a run created it, because it may contain entries of others.
func removeAll(ctx context.Context, r *run, list client.ObjectList, options ...client.ListOption) ([]string, error) {
	if err := r.client.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing objects of runs: %w", err)
	}
	var objects []client.Object
	switch list := list.(type) {
	case *certificatesv1.CertificateSigningRequestList:
		objects = pointers[certificatesv1.CertificateSigningRequest](list.Items)
	case *corev1.NamespaceList:
		objects = pointers[corev1.Namespace](list.Items)
	case *corev1.ConfigMapList:
		objects = pointers[corev1.ConfigMap](list.Items)
	}
	var removed []string
	var failed []error
	for _, object := range objects {
		if object.GetName() == contract.InstancesConfigMap {
			continue
		}
		uid := object.GetUID()
		err := r.client.Delete(ctx, object, client.Preconditions{UID: &uid})
		if failed = append(failed, client.IgnoreNotFound(err)); err == nil {
			removed = append(removed, strings.ToLower(fmt.Sprintf("%T", object)[len("*v1."):])+" "+object.GetName())
		}
	}
	return removed, errors.Join(failed...)
}

// pointers returns pointers to the elements of a slice.
func pointers[T any, P interface {
	*T
	client.Object
}](items []T) (all []client.Object) {
	for i := range items {
		all = append(all, P(&items[i]))
	}
	return all
}

// othersEnded waits until every other run has ended. A run has ended if its record isn't renewed for a while. The
// clocks of two computers may differ, so othersEnded checks whether the time in the record changes.
func othersEnded(ctx context.Context, r *run) error {
	first, begun := map[string]string{}, time.Now()
	return r.await(ctx, 2*r.Alive+r.Pace, "waiting for other runs to end",
		func(ctx context.Context) (bool, string, error) {
			records := &corev1.ConfigMapList{}
			if err := r.client.List(ctx, records, client.InNamespace(r.Namespace),
				client.MatchingLabels{contract.ManagedByLabel: managedBy}); err != nil {
				return false, "", err
			}
			var alive []string
			for _, record := range records.Items {
				sign := record.Annotations[aliveAnnotation]
				if sign == "" || longAgo(sign, r.Alive) {
					continue
				}
				before, seen := first[record.Name]
				if first[record.Name] = sign; seen && before != sign {
					return false, "", wrongf("run %s is still running; end it first", record.Labels[runLabel])
				}
				if time.Since(begun) < r.Alive {
					alive = append(alive, record.Labels[runLabel])
				}
			}
			slices.Sort(alive)
			if len(alive) > 0 {
				return false, "runs that may be at work: " + strings.Join(alive, ", "), nil
			}
			return true, "", nil
		})
}

// longAgo reports whether a record was last renewed so long ago that no difference of clocks explains it.
func longAgo(sign string, alive time.Duration) bool {
	at, err := time.Parse(time.RFC3339Nano, sign)
	return err != nil || time.Since(at).Abs() > longDead*alive
}
