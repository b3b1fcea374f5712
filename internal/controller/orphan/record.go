package orphan

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/windows-nodes/wmco/internal/contract"
)

// recordLife is how long a released host is remembered. It is longer than the lifetime of kubelet's certificate,
// because kubelet needs a valid certificate to register a Node.
const recordLife = 400 * 24 * time.Hour

// releasedNodes returns the ConfigMap for the nodes of hosts that were released by force, without its content.
func (r *Reconciler) releasedNodes() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: contract.ReleasedConfigMap}}
}

// isReleased reports whether the host of a node was released by force.
func (r *Reconciler) isReleased(ctx context.Context, node string) (bool, error) {
	list := r.releasedNodes()
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(list), list); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading ConfigMap %s: %w", list.Name, err)
	}
	return list.Data[node] != "", nil
}

func (r *Reconciler) addReleased(ctx context.Context, node string) error {
	return r.changeReleased(ctx, func(data map[string]string) { data[node] = r.now().UTC().Format(time.RFC3339) })
}

func (r *Reconciler) dropReleased(ctx context.Context, node string) error {
	if there, err := r.isReleased(ctx, node); err != nil || !there {
		return err
	}
	return r.changeReleased(ctx, func(data map[string]string) { delete(data, node) })
}

// changeReleased edits the list of released nodes, and removes expired entries.
func (r *Reconciler) changeReleased(ctx context.Context, edit func(data map[string]string)) error {
	list := r.releasedNodes()
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, list, func() error {
		if list.Data == nil {
			list.Data = map[string]string{}
		}
		maps.DeleteFunc(list.Data, func(_, text string) bool {
			at, err := time.Parse(time.RFC3339, text)
			return err != nil || r.now().Sub(at) > recordLife
		})
		edit(list.Data)
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", list.Name, err)
	}
	return nil
}
