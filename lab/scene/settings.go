package scene

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Configure writes the WindowsMachineConfig. Right after its CRD was installed it may take a moment
// to be served.
func (s *Scene) Configure(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec) error {
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
				meta.IsNoMatchError(err) {
				return false, nil
			}
			return err == nil, err
		})
	if err != nil {
		return fmt.Errorf("writing the WindowsMachineConfig: %w", err)
	}
	return nil
}
