package orphan

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

// recordLife is how long a released host is remembered: longer than the lifetime of kubelet's certificate, because
// kubelet can't register a Node without it.
const recordLife = 400 * 24 * time.Hour

// record is the list of nodes whose hosts were released by force.
type record struct {
	client    client.Client
	namespace string
	now       func() time.Time
}

func (r record) has(ctx context.Context, node string) (bool, error) {
	list, err := r.read(ctx)
	return list.Data[node] != "", err
}

func (r record) add(ctx context.Context, node string) error {
	return r.change(ctx, func(data map[string]string) { data[node] = r.now().UTC().Format(time.RFC3339) })
}

func (r record) drop(ctx context.Context, node string) error {
	if there, err := r.has(ctx, node); err != nil || !there {
		return err
	}
	return r.change(ctx, func(data map[string]string) { delete(data, node) })
}

func (r record) read(ctx context.Context) (*corev1.ConfigMap, error) {
	list := &corev1.ConfigMap{}
	list.Namespace, list.Name = r.namespace, contract.ReleasedConfigMap
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(list), list); client.IgnoreNotFound(err) != nil {
		return list, fmt.Errorf("reading ConfigMap %s: %w", contract.ReleasedConfigMap, err)
	}
	return list, nil
}

// change writes the list, without expired entries.
func (r record) change(ctx context.Context, edit func(data map[string]string)) error {
	list, err := r.read(ctx)
	if err != nil {
		return err
	}
	if list.Data == nil {
		list.Data = map[string]string{}
	}
	for node, text := range list.Data {
		if at, err := time.Parse(time.RFC3339, text); err != nil || r.now().Sub(at) > recordLife {
			delete(list.Data, node)
		}
	}
	edit(list.Data)
	if list.ResourceVersion == "" {
		err = r.client.Create(ctx, list)
	} else {
		err = r.client.Update(ctx, list)
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", list.Name, err)
	}
	return nil
}
