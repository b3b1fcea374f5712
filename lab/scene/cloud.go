package scene

import (
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cloud"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// newCloud makes the platform's cloud, whose hosts have the same programs as the others.
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

// place puts a listed host on the scene's platform, where it runs as an instance that no Machine made.
func (s *Scene) place(host *fleet.HostOptions) {
	host.Name = cloud.NodeName(s.options.Platform, host.Machine.Hostname, host.Machine.Address)
	host.Machine.Metadata, host.Machine.MetadataRouted = cloud.Metadata(s.options.Platform, host.Name)
}

// NewMachineSet makes a MachineSet of the scene's platform. Machines that are made before there is user data fail, so it waits for that.
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

// WaitUserData waits until the operator has published the secret that Machines boot with.
func (s *Scene) WaitUserData(ctx context.Context, patience time.Duration) error {
	return s.Await(ctx, patience, "the secret with the user data", func(ctx context.Context) (bool, string, error) {
		secret := &corev1.Secret{}
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.MachineAPINamespace, Name: cloud.UserDataSecret}, secret)
		return len(secret.Data["userData"]) > 0, "", client.IgnoreNotFound(err)
	})
}

// Machines of a set, those that leave among them.
func (s *Scene) Machines(ctx context.Context, set string) ([]machinev1beta1.Machine, error) {
	list := &machinev1beta1.MachineList{}
	err := s.Client.List(ctx, list, client.InNamespace(contract.MachineAPINamespace), client.MatchingLabels(cloud.SetLabels(set)))
	if err != nil {
		return nil, fmt.Errorf("listing the machines of set %s: %w", set, err)
	}
	return list.Items, nil
}

// onCloud says whether the scene has a cloud.
func (o Options) onCloud() bool { return o.Platform != configv1.NonePlatformType }
