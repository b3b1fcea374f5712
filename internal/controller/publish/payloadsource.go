package publish

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/contract"
)

// PayloadSource is where daemons fetch blobs while their nodes serve.
type PayloadSource struct {
	// URLs of payload servers, without a path. None: there is no payload server, and daemons can't
	// fetch anything.
	URLs []string
	// CA is the PEM certificates that they show.
	CA []byte
}

// publishSource keeps the ConfigMap that tells daemons where payload servers are. It changes with
// every start of the operator, whose payload server has another certificate then, so it is no part
// of a revision: a daemon that a payload server is a stranger to reads it again.
func (p *publisher) publishSource(ctx context.Context) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace,
		Name: contract.PayloadSourceConfigMap}}
	err := p.client.Get(ctx, client.ObjectKeyFromObject(object), object)
	exists := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading ConfigMap %s: %w", contract.PayloadSourceConfigMap, err)
	}
	want := map[string]string{contract.PayloadSourceURLs: strings.Join(p.PayloadSource.URLs, "\n"),
		contract.PayloadSourceCA: string(p.PayloadSource.CA)}
	ours := object.Labels[contract.ManagedByLabel] == contract.OperatorServiceAccount
	switch {
	case len(p.PayloadSource.URLs) == 0:
		if !exists || !ours || !object.DeletionTimestamp.IsZero() {
			return nil
		}
		err = p.client.Delete(ctx, object, exactly(object))
	case !exists:
		object.Labels, object.Data = map[string]string{contract.ManagedByLabel: contract.OperatorServiceAccount}, want
		err = p.client.Create(ctx, object)
	case ours && maps.Equal(object.Data, want) && len(object.BinaryData) == 0:
		return nil
	default:
		changed := object.DeepCopy()
		changed.Labels, changed.Data, changed.BinaryData = map[string]string{
			contract.ManagedByLabel: contract.OperatorServiceAccount}, want, nil
		err = p.client.Update(ctx, changed)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return nil // its event brings us back
	}
	if err != nil {
		return fmt.Errorf("keeping ConfigMap %s: %w", contract.PayloadSourceConfigMap, err)
	}
	logf.FromContext(ctx).Info("daemons are told where the payload is", "configMap", contract.PayloadSourceConfigMap,
		"urls", p.PayloadSource.URLs)
	return nil
}
