package userdata

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/batch"
)

// watcher tells of every change of the secret windows-user-data, in each namespace from when it was
// first seen that we may read it there.
type watcher struct {
	mgr     ctrl.Manager
	secrets kubernetes.Interface
	changed batch.Signal

	mu    sync.Mutex
	begun map[string]bool
}

func newWatcher(mgr ctrl.Manager, secrets kubernetes.Interface) *watcher {
	return &watcher{mgr: mgr, secrets: secrets, changed: batch.NewSignal(), begun: map[string]bool{}}
}

// begin watches in one more namespace, until the manager stops. A repeated call does nothing.
func (w *watcher) begin(ctx context.Context, namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun[namespace] {
		return
	}
	watched := manager.RunnableFunc(func(ctx context.Context) error {
		w.watch(ctx, namespace)
		return nil
	})
	if err := w.mgr.Add(watched); err != nil {
		logf.FromContext(ctx).Error(err, "watching the user data", "namespace", namespace)
		return // the next look tries again
	}
	w.begun[namespace] = true
}

// watch works until ctx ends. The informer itself tries again when the API server is away or
// refuses.
func (w *watcher) watch(ctx context.Context, namespace string) {
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, contract.UserDataSecret)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(w.secrets.CoreV1().RESTClient(), string(corev1.ResourceSecrets),
			namespace, one),
		ObjectType: &corev1.Secret{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { w.tell() }, UpdateFunc: func(any, any) { w.tell() },
			DeleteFunc: func(any) { w.tell() },
		},
		// What is kept is which objects there are, and no secret.
		Transform: func(object any) (any, error) {
			if secret, ok := object.(*corev1.Secret); ok {
				return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
					Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID,
					ResourceVersion: secret.ResourceVersion, Annotations: maps.Clone(secret.Annotations),
				}}, nil
			}
			return object, nil
		},
	})
	informer.RunWithContext(ctx)
}

func (w *watcher) tell() {
	w.changed.Send(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: contract.UserDataSecret}})
}
