package scene

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// pace is how often the lab polls its API server.
const pace = 100 * time.Millisecond

// Await calls `holds` until it returns true. `what` describes the condition for the error message. If the timeout ends
// first, the error also contains the last state that `holds` returned.
func (s *Scene) Await(ctx context.Context, timeout time.Duration, what string,
	holds func(ctx context.Context) (bool, string, error)) error {
	return await(ctx, pace, timeout, what, holds)
}

func await(ctx context.Context, pace, timeout time.Duration, what string,
	holds func(ctx context.Context) (bool, string, error)) error {
	last := ""
	err := wait.PollUntilContextTimeout(ctx, pace, timeout, true, func(ctx context.Context) (bool, error) {
		ok, now, err := holds(ctx)
		if now != "" {
			last = now
		}
		return ok, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w; %s", what, err, last)
	}
	return nil
}

// WaitReady waits until the hosts are Ready nodes.
func (s *Scene) WaitReady(ctx context.Context, timeout time.Duration, hosts ...*fleet.Host) error {
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = NameOf(h)
	}
	return s.WaitInstances(ctx, timeout, names...)
}

// forOne is added to the polling interval for each instance in the list. Without this, listing hundreds of instances
// would cause most of the API server's load.
const forOne = 3 * time.Millisecond

// WaitInstances waits until the hosts of the instances with these names are Ready nodes.
func (s *Scene) WaitInstances(ctx context.Context, timeout time.Duration, names ...string) error {
	each := time.Duration(len(names)) * forOne
	return await(ctx, pace+each, timeout, fmt.Sprintf("%d hosts to be Ready", len(names)),
		func(ctx context.Context) (bool, string, error) {
			list := &v1alpha1.WindowsInstanceList{}
			if err := s.Client.List(ctx, list, client.InNamespace(s.options.Namespace)); err != nil {
				return false, "", err
			}
			named := map[string]*v1alpha1.WindowsInstance{}
			for i := range list.Items {
				named[list.Items[i].Name] = &list.Items[i]
			}
			var behind []string
			for _, name := range names {
				i := named[name]
				switch {
				case i == nil:
					behind = append(behind, name+": no instance")
				case i.Status.Phase != v1alpha1.PhaseReady || i.Status.Reason() != string(contract.ReasonNodeReady):
					behind = append(behind,
						fmt.Sprintf("%s: %s %s: %s", name, i.Status.Phase, i.Status.Reason(), i.Status.Message()))
				}
			}
			return len(behind) == 0, strings.Join(behind, "; "), nil
		})
}

// WaitGone waits until the WindowsInstances and Nodes of the hosts are deleted.
func (s *Scene) WaitGone(ctx context.Context, timeout time.Duration, hosts ...*fleet.Host) error {
	return s.Await(ctx, timeout, fmt.Sprintf("%d hosts to be gone", len(hosts)),
		func(ctx context.Context) (bool, string, error) {
			for _, h := range hosts {
				i, err := s.Instance(ctx, h)
				if err == nil {
					return false, fmt.Sprintf("%s: %s %s: %s", h.Name, i.Status.Phase, i.Status.Reason(),
						i.Status.Message()), nil
				}
				if !apierrors.IsNotFound(err) {
					return false, "", err
				}
				if err = s.Client.Get(ctx, client.ObjectKey{Name: h.Name}, &corev1.Node{}); !apierrors.IsNotFound(err) {
					return false, h.Name + ": its Node is there", client.IgnoreNotFound(err)
				}
			}
			return true, "", nil
		})
}
