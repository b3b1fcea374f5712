package scene

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Configure creates or updates the WindowsMachineConfig. It tries again after errors, because the API server doesn't
// serve a CRD immediately after its installation. If this takes too long, Configure also prints the goroutines of the
// API server's handlers, because the API server once didn't answer for a minute.
func (s *Scene) Configure(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec) error {
	late := time.AfterFunc(20*time.Second, func() { s.showBlocked(ctx) })
	defer late.Stop()
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
			err := s.Client.Get(ctx, client.ObjectKeyFromObject(config), config)
			config.Spec = spec
			switch {
			case meta.IsNoMatchError(err):
				return false, nil
			case apierrors.IsNotFound(err):
				err = s.Client.Create(ctx, config)
			case err == nil:
				err = s.Client.Update(ctx, config)
			}
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) ||
				meta.IsNoMatchError(err) || apierrors.IsTimeout(err) {
				return false, nil
			}
			return err == nil, err
		})
	if err != nil {
		return fmt.Errorf("writing the WindowsMachineConfig: %w", err)
	}
	return nil
}

// showBlocked prints the goroutines of the API server that handle custom resources.
func (s *Scene) showBlocked(ctx context.Context) {
	clients, err := kubernetes.NewForConfig(s.Cluster.Admin())
	if err != nil {
		s.say("the API server's goroutines are not read: " + err.Error())
		return
	}
	all, err := clients.RESTClient().Get().AbsPath("/debug/pprof/goroutine").Param("debug", "2").DoRaw(ctx)
	if err != nil {
		s.say("the API server's goroutines are not read: " + err.Error())
	}
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		if strings.Contains(stack, "customresource_handler.go") {
			s.say("the WindowsMachineConfig is waited for; a goroutine of the API server: " + stack)
		}
	}
}
