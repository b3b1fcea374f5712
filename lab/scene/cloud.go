package scene

import (
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cloud"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// newCloud creates the cloud of the scene's platform. The hosts that the cloud creates have the same programs as the
// hosts of the fleet.
func (s *Scene) newCloud() (err error) {
	options := s.options.Cloud
	options.Config, options.Platform, options.TemplateKey = s.Cluster.Admin(), s.options.Platform, s.Key.Public
	if options.Programs == nil {
		options.Programs = Programs(payloadVersion)
	}
	if s.Cloud, err = cloud.New(options); err != nil {
		return fmt.Errorf("making the cloud: %w", err)
	}
	return nil
}

// place turns a host of the fleet into an instance of the scene's platform. The instance has no Machine.
func (s *Scene) place(host *fleet.HostOptions) {
	host.NoSSH = s.options.ByItself
	host.Name = cloud.NodeName(s.options.Platform, host.Machine.Hostname, host.Machine.Address)
	host.Machine.Metadata, host.Machine.MetadataRouted = cloud.Metadata(s.options.Platform, host.Name,
		cloud.ProviderID(s.options.Platform, host.Name))
}

// NewMachineSet creates a MachineSet for the platform of the scene. It waits for the user data first, because a Machine
// fails if it is created before the user data.
func (s *Scene) NewMachineSet(ctx context.Context, name string, replicas int32) (*machinev1beta1.MachineSet, error) {
	if err := s.WaitUserData(ctx, time.Minute); err != nil {
		return nil, err
	}
	set := cloud.NewMachineSet(s.options.Platform, name, replicas)
	if err := s.Client.Create(ctx, set); err != nil {
		return nil, fmt.Errorf("creating MachineSet %s: %w", name, err)
	}
	return set, nil
}

// WaitUserData waits until the operator has created the user data secret for Machines.
func (s *Scene) WaitUserData(ctx context.Context, timeout time.Duration) error {
	return s.Await(ctx, timeout, "the secret with the user data", func(ctx context.Context) (bool, string, error) {
		secret := &corev1.Secret{}
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.MachineAPINamespace, Name: cloud.UserDataSecret},
			secret)
		return len(secret.Data["userData"]) > 0, "", client.IgnoreNotFound(err)
	})
}

// Machines returns the Machines of a set, including Machines that are being deleted.
func (s *Scene) Machines(ctx context.Context, set string) ([]machinev1beta1.Machine, error) {
	list := &machinev1beta1.MachineList{}
	err := s.Client.List(ctx, list, client.InNamespace(contract.MachineAPINamespace),
		client.MatchingLabels(cloud.SetLabels(set)))
	if err != nil {
		return nil, fmt.Errorf("listing the machines of set %s: %w", set, err)
	}
	return list.Items, nil
}

// Scale adds difference to the number of replicas of a MachineSet. If first is not nil, the MachineSet deletes this
// Machine before other Machines.
func (s *Scene) Scale(ctx context.Context, first *machinev1beta1.Machine, set string, difference int32) error {
	if first != nil {
		patch := client.MergeFrom(first.DeepCopy())
		metav1.SetMetaDataAnnotation(&first.ObjectMeta, cloud.DeleteAnnotation, "true")
		if err := s.Client.Patch(ctx, first, patch); err != nil {
			return fmt.Errorf("choosing machine %s: %w", first.Name, err)
		}
	}
	object := &machinev1beta1.MachineSet{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.MachineAPINamespace, Name: set},
		object); err != nil {
		return fmt.Errorf("reading MachineSet %s: %w", set, err)
	}
	patch := client.MergeFrom(object.DeepCopy())
	object.Spec.Replicas = ptr.To(ptr.Deref(object.Spec.Replicas, 1) + difference)
	if err := s.Client.Patch(ctx, object, patch); err != nil {
		return fmt.Errorf("scaling MachineSet %s: %w", set, err)
	}
	return nil
}

// WaitMachineGone waits until a Machine and its host, Node and instance are deleted.
func (s *Scene) WaitMachineGone(ctx context.Context, timeout time.Duration, machine *machinev1beta1.Machine) error {
	return s.Await(ctx, timeout, "machine "+machine.Name+" to be gone",
		func(ctx context.Context) (bool, string, error) {
			if _, ok := s.Cloud.Host(machine.Name); ok {
				return false, "its host is there", nil
			}
			things := map[string]client.Object{"machine": &machinev1beta1.Machine{},
				"instance": &v1alpha1.WindowsInstance{}}
			keys := map[string]client.ObjectKey{
				"machine":  client.ObjectKeyFromObject(machine),
				"instance": {Namespace: s.options.Namespace, Name: machine.Name},
			}
			if machine.Status.NodeRef != nil {
				things["node"], keys["node"] = &corev1.Node{}, client.ObjectKey{Name: machine.Status.NodeRef.Name}
			}
			for what, object := range things {
				if err := s.Client.Get(ctx, keys[what], object); !apierrors.IsNotFound(err) {
					return false, fmt.Sprintf("its %s is there", what), err
				}
			}
			return true, "", nil
		})
}

// onCloud reports whether the scene has a cloud.
func (o Options) onCloud() bool { return o.Platform != configv1.NonePlatformType }
