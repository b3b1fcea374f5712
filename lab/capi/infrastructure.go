package capi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/fleet"
)

//go:embed crd.yaml
var crds []byte

// InfrastructureGroup is the API group of the lab's infrastructure provider: LabCluster, LabControlPlane, LabMachine
// and LabMachineTemplate. They have no fields that a user sets, except spec.neverBoots of a LabMachine. A
// LabControlPlane represents the lab's existing control plane.
const InfrastructureGroup = "infrastructure.cluster.x-k8s.io"

// machineFinalizer keeps a LabMachine until its host is off.
const machineFinalizer = "lab/host"

// Object returns an object whose kind has no Go type here, such as a Cluster or a LabMachine.
func Object(group, version, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// Infrastructure is an infrastructure provider. A LabMachine gets a host as soon as its Machine has bootstrap data, and
// the host runs this data at its first boot as cloudbase-init does.
type Infrastructure struct {
	client client.Client
	log    logr.Logger
	work   sync.WaitGroup

	mu    sync.Mutex
	free  []*fleet.Host
	hosts map[string]*fleet.Host // by the name of the LabMachine
}

// Provide starts an infrastructure provider with a stock of hosts. The provider runs until ctx ends or stop is called.
// stop returns when the provider has ended.
func Provide(ctx context.Context, lab *cluster.Cluster, dir string, hosts []*fleet.Host, log logr.Logger) (
	i *Infrastructure, stop func() error, err error) {
	path := filepath.Join(dir, "infrastructure.yaml")
	if err = os.WriteFile(path, crds, 0o600); err != nil {
		return nil, nil, err
	}
	if _, err = cluster.InstallCRDs(ctx, lab.Admin(), cluster.CRDOptions{Paths: []string{path}}); err != nil {
		return nil, nil, err
	}
	scheme := runtime.NewScheme()
	if err = clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	mgr, err := ctrl.NewManager(lab.Admin(), ctrl.Options{Scheme: scheme, Logger: log,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}}})
	if err != nil {
		return nil, nil, err
	}
	i = &Infrastructure{client: mgr.GetClient(), log: log, free: hosts, hosts: map[string]*fleet.Host{}}
	err = errors.Join(
		ctrl.NewControllerManagedBy(mgr).Named("labcluster").
			For(Object(InfrastructureGroup, "v1", "LabCluster", "", "")).
			Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, i.cluster(ctx, r, lab.URL)
			})),
		ctrl.NewControllerManagedBy(mgr).Named("labcontrolplane").
			For(Object(InfrastructureGroup, "v1", "LabControlPlane", "", "")).
			Complete(reconcile.Func(i.controlPlane)),
		ctrl.NewControllerManagedBy(mgr).Named("labmachine").
			For(Object(InfrastructureGroup, "v1", "LabMachine", "", "")).
			Complete(reconcile.Func(i.machine)))
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return i, func() error {
		cancel()
		err := <-ended
		i.work.Wait()
		return err
	}, nil
}

// Host returns the host of a LabMachine, or nil.
func (i *Infrastructure) Host(machine string) *fleet.Host {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hosts[machine]
}

// The method cluster writes the control plane's address to a LabCluster, and marks the LabCluster as provisioned.
func (i *Infrastructure) cluster(ctx context.Context, r reconcile.Request, server string) error {
	c := Object(InfrastructureGroup, "v1", "LabCluster", r.Namespace, r.Name)
	if err := i.client.Get(ctx, r.NamespacedName, c); err != nil {
		return client.IgnoreNotFound(err)
	}
	host, number, _ := strings.Cut(strings.TrimPrefix(server, "https://"), ":")
	var digits int64
	if _, err := fmt.Sscan(number, &digits); err != nil {
		return err
	}
	before := c.DeepCopy()
	if err := unstructured.SetNestedMap(c.Object, map[string]any{"host": host, "port": digits},
		"spec", "controlPlaneEndpoint"); err != nil {
		return err
	}
	if err := i.client.Patch(ctx, c, client.MergeFrom(before)); err != nil {
		return err
	}
	return i.provisioned(ctx, c)
}

// controlPlane marks a LabControlPlane as initialized, because the lab's control plane is already running.
func (i *Infrastructure) controlPlane(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	c := Object(InfrastructureGroup, "v1", "LabControlPlane", r.Namespace, r.Name)
	patch := client.RawPatch(types.MergePatchType,
		[]byte(`{"status":{"externalManagedControlPlane":true,"initialization":{"controlPlaneInitialized":true}}}`))
	return reconcile.Result{}, client.IgnoreNotFound(i.client.Status().Patch(ctx, c, patch))
}

func (i *Infrastructure) provisioned(ctx context.Context, o *unstructured.Unstructured) error {
	before := o.DeepCopy()
	if err := unstructured.SetNestedField(o.Object, true, "status", "initialization", "provisioned"); err != nil {
		return err
	}
	return client.IgnoreNotFound(i.client.Status().Patch(ctx, o, client.MergeFrom(before)))
}

// poll is the interval at which the provider checks whether the Machine of a LabMachine has bootstrap data.
const poll = 300 * time.Millisecond

// machine takes the next step for a LabMachine.
func (i *Infrastructure) machine(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	m := Object(InfrastructureGroup, "v1", "LabMachine", r.Namespace, r.Name)
	if err := i.client.Get(ctx, r.NamespacedName, m); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := m.DeepCopy()
	if m.GetDeletionTimestamp() != nil {
		if err := i.off(m.GetName()); err != nil {
			return reconcile.Result{}, err
		}
		controllerutil.RemoveFinalizer(m, machineFinalizer)
		return reconcile.Result{}, client.IgnoreNotFound(i.client.Patch(ctx, m, client.MergeFrom(before)))
	}
	owner := Object("cluster.x-k8s.io", "v1beta2", "Machine", r.Namespace, "")
	for _, o := range m.GetOwnerReferences() {
		if o.Kind == "Machine" {
			owner.SetName(o.Name)
		}
	}
	if owner.GetName() == "" {
		return reconcile.Result{RequeueAfter: poll}, nil
	}
	if err := i.client.Get(ctx, client.ObjectKeyFromObject(owner), owner); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	secret := &corev1.Secret{}
	name, _, _ := unstructured.NestedString(owner.Object, "spec", "bootstrap", "dataSecretName")
	if name == "" {
		return reconcile.Result{RequeueAfter: poll}, nil
	}
	if err := i.client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, secret); err != nil {
		return reconcile.Result{}, err
	}
	if controllerutil.AddFinalizer(m, machineFinalizer) {
		return reconcile.Result{RequeueAfter: poll}, i.client.Patch(ctx, m, client.MergeFrom(before))
	}
	neverBoots, _, _ := unstructured.NestedBool(m.Object, "spec", "neverBoots")
	if err := i.boot(ctx, m.GetName(), string(secret.Data["value"]), neverBoots); err != nil {
		return reconcile.Result{}, err
	}
	if err := unstructured.SetNestedField(m.Object, "lab:///"+m.GetName(), "spec", "providerID"); err != nil {
		return reconcile.Result{}, err
	}
	if err := i.client.Patch(ctx, m, client.MergeFrom(before)); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, i.provisioned(ctx, m)
}

// If neverBoots is false, boot takes a host from the stock and runs script on it. A repeated call does nothing.
func (i *Infrastructure) boot(ctx context.Context, machine, script string, neverBoots bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.hosts[machine]; ok {
		return nil
	}
	if neverBoots {
		i.hosts[machine] = nil
		return nil
	}
	if len(i.free) == 0 {
		return errors.New("the stock of hosts is empty")
	}
	host := i.free[0]
	i.free, i.hosts[machine] = i.free[1:], host
	ctx = context.WithoutCancel(ctx)
	i.work.Go(func() {
		if _, err := fleet.RunJoinCommand(ctx, host.Machine, script); err != nil {
			i.log.Error(err, "the bootstrap data failed", "machine", machine)
		}
	})
	return nil
}

// The method off switches off the host of a LabMachine.
func (i *Infrastructure) off(machine string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	host := i.hosts[machine]
	delete(i.hosts, machine)
	if host == nil {
		return nil
	}
	return host.Close()
}
