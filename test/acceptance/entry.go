package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

// entriesAnnotation is an annotation of windows-instances that lists the entries of runs. The entries and the
// annotation are written in one request, so that a run that is killed has written both or neither.
const entriesAnnotation = contract.Prefix + "e2e-entries"

// mark is the record of one entry in the annotation.
type mark struct {
	// Run is the run that wrote the entry, and Settings are the settings that it wrote. If the entry has other settings
	// now, it no longer belongs to the run.
	Run      string `json:"run"`
	Settings string `json:"settings"`
}

// marksOf reads the marks of windows-instances. Unreadable marks are ignored.
func marksOf(list *corev1.ConfigMap) map[string]mark {
	marks := map[string]mark{}
	_ = json.Unmarshal([]byte(list.Annotations[entriesAnnotation]), &marks)
	return marks
}

func setMarks(list *corev1.ConfigMap, marks map[string]mark) error {
	if len(marks) == 0 {
		delete(list.Annotations, entriesAnnotation)
		return nil
	}
	text, err := json.Marshal(marks)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&list.ObjectMeta, entriesAnnotation, string(text))
	return nil
}

// listEntries adds the run's entries to windows-instances. If an entry belongs to someone else, it stays unchanged,
// and listEntries returns an error.
func listEntries(ctx context.Context, r *run, entries map[string]string) error {
	return editEntries(ctx, r, true, func(list *corev1.ConfigMap) error {
		marks := marksOf(list)
		for key, settings := range entries {
			if taken := taken(r, list, marks, key); taken != nil {
				return taken
			}
			if list.Data == nil {
				list.Data = map[string]string{}
			}
			list.Data[key], marks[key] = settings, mark{Run: r.id, Settings: settings}
		}
		return setMarks(list, marks)
	})
}

// taken reports whether an entry belongs to someone else.
func taken(r *run, list *corev1.ConfigMap, marks map[string]mark, key string) error {
	for other, settings := range inventory.Values(list) {
		mine := other == key && marks[key] == mark{Run: r.id, Settings: settings}
		if strings.EqualFold(other, key) && !mine {
			return cannot("host %s is already in windows-instances, by another user: it is not touched", key)
		}
	}
	return nil
}

// unlist deletes the entries of runs that the parameter `which` selects, and returns their keys. If someone has changed
// an entry, the entry stays.
func unlist(ctx context.Context, r *run, which func(key string, m mark) bool) (removed []string, err error) {
	err = editEntries(ctx, r, false, func(list *corev1.ConfigMap) error {
		removed = nil
		marks := marksOf(list)
		for key, m := range maps.Clone(marks) {
			if !which(key, m) {
				continue
			}
			settings, listed := list.Data[key]
			if listed && settings == m.Settings {
				delete(list.Data, key)
				removed = append(removed, key)
			}
			delete(marks, key)
		}
		return setMarks(list, marks)
	})
	return removed, err
}

// editEntries changes windows-instances. After a conflict with another writer, it reads the list again.
func editEntries(ctx context.Context, r *run, create bool, change func(list *corev1.ConfigMap) error) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace,
			Name: contract.InstancesConfigMap}}
		err := r.client.Get(ctx, client.ObjectKeyFromObject(list), list)
		absent := apierrors.IsNotFound(err)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading windows-instances: %w", err)
		}
		if absent && !create {
			return nil
		}
		if err = change(list); err != nil {
			return err
		}
		if len(inventory.Values(list)) > 0 && len(marksOf(list)) == 0 &&
			list.Labels[contract.ManagedByLabel] == managedBy {
			delete(list.Labels, contract.ManagedByLabel) // someone else uses the ConfigMap now
			delete(list.Labels, runLabel)
		}
		switch {
		case absent:
			list.Labels = r.labels()
			err = r.client.Create(ctx, list)
			if apierrors.IsAlreadyExists(err) {
				err = apierrors.NewConflict(corev1.Resource("configmaps"), list.Name, err)
			}
		default:
			err = r.client.Update(ctx, list)
		}
		return err
	})
}

// dropList deletes the ConfigMap windows-instances that a run created. It waits until the list is empty and its hosts
// are removed: if a list with hosts disappears, the operator waits, because the deletion may be an accident.
func dropList(ctx context.Context, r *run) error {
	list := &corev1.ConfigMap{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: contract.InstancesConfigMap}, list)
	if err != nil || len(inventory.Values(list)) > 0 || list.Labels[contract.ManagedByLabel] != managedBy {
		return client.IgnoreNotFound(err)
	}
	err = r.client.Delete(ctx, list, client.Preconditions{UID: &list.UID, ResourceVersion: &list.ResourceVersion})
	if apierrors.IsConflict(err) { // someone uses it now
		return nil
	}
	return client.IgnoreNotFound(err)
}

// instances returns all WindowsInstances.
func (r *run) instances(ctx context.Context) ([]v1alpha1.WindowsInstance, error) {
	list := &v1alpha1.WindowsInstanceList{}
	err := r.client.List(ctx, list, client.InNamespace(r.Namespace))
	return list.Items, err
}

// instance returns the instance of an entry, or nil. It ignores instances that a user or a Machine created.
func (r *run) instance(ctx context.Context, key string) (*v1alpha1.WindowsInstance, error) {
	all, err := r.instances(ctx)
	for i := range all {
		source := all[i].Spec.Source
		if source != nil && source.Kind == v1alpha1.SourceConfigMap && source.Name == key {
			return &all[i], err
		}
	}
	return nil, err
}

// state describes an instance in one line.
func state(i *v1alpha1.WindowsInstance) string {
	if i == nil {
		return "there is no WindowsInstance yet"
	}
	s := i.Status
	return strings.TrimSpace(fmt.Sprintf("%s, %s: %s", s.Phase, s.Reason(), s.Message()))
}

// The function gone waits until hosts without an entry are no longer nodes. If a host never was a node, it needs no
// cleanup over SSH, and may not even answer.
func gone(ctx context.Context, r *run, keys []string) error {
	var failed []error
	for _, key := range keys {
		nodeName, forced := "", false
		failed = append(failed, r.await(ctx, r.LeaveTimeout, "removing host "+key,
			func(ctx context.Context) (bool, string, error) {
				i, err := r.instance(ctx, key)
				if err != nil {
					return false, "", err
				}
				if i != nil {
					if nodeName = i.Status.NodeName; !i.Status.Joined() && i.Status.Failures > 0 && !forced {
						forced = true
						return false, state(i), r.client.Patch(ctx, i, mergePatch(`{"spec":{"removalPolicy":"Force"}}`))
					}
					return false, state(i), nil
				}
				if nodeName == "" {
					return true, "", nil
				}
				err = r.client.Get(ctx, client.ObjectKey{Name: nodeName}, &corev1.Node{})
				return apierrors.IsNotFound(err), "its Node is there", client.IgnoreNotFound(err)
			}))
	}
	return errors.Join(failed...)
}
