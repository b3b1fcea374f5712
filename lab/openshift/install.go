package openshift

import (
	"context"
	"errors"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// Options are the properties that the cluster claims.
type Options struct {
	// APIServer is the URL of the API server for nodes, and CA verifies it.
	APIServer string
	CA        []byte
	// Platform is the cluster's platform. The default is None.
	Platform configv1.PlatformType
}

// Install installs CRDs, namespaces, objects and rights. A repeated call changes nothing.
func Install(ctx context.Context, config *rest.Config, options Options) error {
	if options.Platform == "" {
		options.Platform = configv1.NonePlatformType
	}
	if err := installCRDs(ctx, config); err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, object := range objects(options) {
		if err = create(ctx, c, object); err != nil {
			return err
		}
	}
	return waitForToken(ctx, c)
}

// SetPlatform changes the platform that an installed cluster claims. Repeat it after an error.
func SetPlatform(ctx context.Context, config *rest.Config, options Options) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, object := range ofPlatform(options) {
		if err = c.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %T %s: %w", object, object.GetName(), err)
		}
	}
	for _, object := range ofPlatform(options) {
		if err = create(ctx, c, object); err != nil {
			return err
		}
	}
	return nil
}

// names returns the CRDs of the objects that the operator reads and writes.
func names() []string {
	return []string{
		"infrastructures.config.openshift.io", "networks.config.openshift.io", "proxies.config.openshift.io",
		"imagedigestmirrorsets.config.openshift.io", "imagetagmirrorsets.config.openshift.io",
		"images.config.openshift.io", "imagecontentsourcepolicies.operator.openshift.io",
		"networks.operator.openshift.io",
		"controllerconfigs.machineconfiguration.openshift.io", "machineconfigs.machineconfiguration.openshift.io",
		"machineconfigpools.machineconfiguration.openshift.io",
		"machines.machine.openshift.io", "machinesets.machine.openshift.io",
	}
}

func installCRDs(ctx context.Context, config *rest.Config) error {
	dirs, err := cluster.OpenShiftCRDDirs(ctx, "config/v1", "operator/v1", "operator/v1alpha1",
		"machineconfiguration/v1", "machine/v1beta1")
	if err != nil {
		return fmt.Errorf("finding OpenShift's CRDs: %w", err)
	}
	_, err = cluster.InstallCRDs(ctx, config,
		cluster.CRDOptions{Paths: dirs, Names: names(), Filter: cluster.OpenShiftDefault})
	if err != nil {
		return fmt.Errorf("installing OpenShift's CRDs: %w", err)
	}
	return nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), configv1.Install(scheme), operatorv1.Install(scheme),
		mcfgv1.Install(scheme), machinev1beta1.Install(scheme))
	if err != nil {
		return nil, fmt.Errorf("making a scheme: %w", err)
	}
	return scheme, nil
}

// create creates an object and, if it has one, its status.
func create(ctx context.Context, c client.Client, object client.Object) error {
	status, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copying %T", object)
	}
	if err := c.Create(ctx, object); apierrors.IsAlreadyExists(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
	}
	switch object.(type) {
	case *configv1.Infrastructure, *mcfgv1.MachineConfigPool:
		status.SetResourceVersion(object.GetResourceVersion())
		status.SetUID(object.GetUID())
		if err := c.Status().Update(ctx, status); err != nil {
			return fmt.Errorf("setting the status of %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// waitForToken waits until the controller manager has filled the bootstrap token secret, as on a real cluster.
func waitForToken(ctx context.Context, c client.Client) error {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: contract.MachineConfigNamespace, Name: contract.BootstrapTokenSecret}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			if err := c.Get(ctx, key, secret); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			return len(secret.Data[corev1.ServiceAccountTokenKey]) > 0, nil
		})
	if err != nil {
		return fmt.Errorf("waiting for the token of secret %s: %w", key, err)
	}
	return nil
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// bootstrapRights returns the rights that let the node bootstrapper request node certificates, as OpenShift's
// machine config operator creates them.
func bootstrapRights() []client.Object {
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineConfigNamespace,
			Name: contract.BootstrapServiceAccount}},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: contract.MachineConfigNamespace, Name: contract.BootstrapTokenSecret,
				Annotations: map[string]string{corev1.ServiceAccountNameKey: contract.BootstrapServiceAccount},
			},
			Type: corev1.SecretTypeServiceAccountToken,
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "system-bootstrap-node-bootstrapper"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
				Name: "system:node-bootstrapper"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: contract.MachineConfigNamespace,
				Name: contract.BootstrapServiceAccount}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "system:node-proxiers"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
		},
	}
}
