package scene

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"path/filepath"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cloud"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/kubeadm"
	"github.com/windows-nodes/wmco/lab/openshift"
	"github.com/windows-nodes/wmco/lab/port"
)

// Options configure a scene.
type Options struct {
	// Operator is the path of the operator's program. It is required.
	Operator string
	// Payload is a directory with a payload. If it is empty, the scene creates a payload of stand-ins.
	Payload string
	// Complete adds stand-ins for parts that Payload lacks. Some parts can't be built from Go modules, and without
	// these parts, no node becomes Ready.
	Complete bool
	// Kubernetes creates a cluster like a cluster of kubeadm instead of OpenShift. Platform and OLM must be empty then.
	// The pod network is flannel if Settings select flannel. Otherwise it is an external network.
	Kubernetes bool
	// Namespace is the namespace of the operator. By default it is contract.OperatorNamespace.
	Namespace string
	// Platform is the platform of the cluster. By default it is None. All other platforms have a cloud that creates a
	// host for each Machine.
	Platform configv1.PlatformType
	// Cloud contains the options of the cloud. The scene sets its fields Config, Platform, TemplateKey and Programs.
	Cloud cloud.Options
	// Hosts contains the options of the hosts that the scene starts with. The scene sets its fields AuthorizedKey and
	// Programs.
	Hosts fleet.Options
	// Computer creates a computer that a host uses instead of a simulated machine. `reach` lists servers on this
	// computer that programs on the host must be able to connect to. Computer may be nil.
	Computer func(ctx context.Context, hostname string, address netip.Addr, reach []netip.AddrPort) (fleet.Computer,
		error)
	// Settings is the initial spec of the WindowsMachineConfig. If it is nil, the scene creates no
	// WindowsMachineConfig.
	Settings *v1alpha1.WindowsMachineConfigSpec
	// NoKey starts the scene without the secret that contains the private key.
	NoKey bool
	// ByItself starts hosts that join by themselves: see Scene.Join. They have no SSH server, and the cluster has no
	// private key.
	ByItself bool
	// Audit makes the API server write an audit log.
	Audit bool
	// Planes is a pool of control planes. The scene takes a control plane from the pool, and Close returns it. If
	// Planes is nil, the scene starts its own control plane.
	Planes *Planes
	// Keep makes Close keep the directory of the scene with all logs.
	Keep bool
	// Progress receives a line of text for each step. It may be nil.
	Progress io.Writer
	// AnyKubectl has the same meaning as in cluster.BuildOptions.
	AnyKubectl bool
	// Debug makes the operator log in detail.
	Debug bool
	// Metrics makes the operator serve its metrics, at Operator.Metrics.
	Metrics bool
	// OLM is the name of the OperatorCondition that tells OLM whether an upgrade is safe. It is empty without OLM.
	OLM string
	// Bundle is a bundle that the scene installs in the way OLM does, instead of config/lab. OLM must be empty then.
	Bundle string
	// SigningDuration is the maximum lifetime of the hosts' certificates: see cluster.Options.
	SigningDuration time.Duration
	// Scheduler starts kube-scheduler, which assigns pods to nodes.
	Scheduler bool
	// Arguments are additional arguments for the operator.
	Arguments []string
	// Front creates a proxy between the operator and the API server. It receives the configuration for connections to
	// the API server, and returns the configuration that the operator uses. It may be nil.
	Front func(*rest.Config) *rest.Config
}

// flannel reports whether the pod network of the scene is flannel.
func (o Options) flannel() bool {
	return o.Kubernetes && o.Settings != nil && o.Settings.Network.Type == v1alpha1.NetworkFlannel
}

// Scene is a running control plane with hosts and the operator.
type Scene struct {
	Cluster *cluster.Cluster
	Fleet   *fleet.Fleet
	// Cloud is the cloud. It is nil on the platform None.
	Cloud *cloud.Cloud
	// Client is a client with all rights.
	Client client.Client
	// Dir is the directory of the scene. It contains the operator's log and kubeconfig, the payload, and the data of
	// the control plane.
	Dir      string
	Operator *Operator
	Key      *Key

	options Options
	// payloadServer is the address where the operator serves the payload. The scene chooses it before it creates the
	// hosts, because the hosts must be able to connect to it.
	payloadServer string
	// bundled are the operator's flags in the bundle.
	bundled []string
	// payload is the directory of the operator's first payload.
	payload string
	// lent is the control plane that the scene took from Options.Planes, or nil. began is when the scene took it.
	lent    *plane
	began   time.Time
	cancel  context.CancelFunc
	running []chan error
	// ports are the ports that the operator listens on. They don't change when the operator restarts.
	ports  []port.Port
	remove func() error
}

// Start starts the control plane, creates the objects of OpenShift, installs the operator's manifests, and starts the
// hosts and the operator. It doesn't add the hosts to windows-instances: see List.
func Start(ctx context.Context, options Options) (_ *Scene, err error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	if options.Platform == "" {
		options.Platform = configv1.NonePlatformType
	}
	options.Namespace = cmp.Or(options.Namespace, contract.OperatorNamespace)
	s := &Scene{options: options}
	if s.Dir, s.remove, err = cluster.TempDir(options.Keep); err != nil {
		return nil, fmt.Errorf("making the scene's directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err = s.startCluster(ctx); err != nil {
		return nil, err
	}
	if options.Settings != nil {
		if err = s.Configure(ctx, *options.Settings); err != nil {
			return nil, err
		}
	}
	if s.payloadServer, err = s.holdPayloadServer(ctx); err != nil {
		return nil, err
	}
	if options.ByItself {
		if err = s.Offer(ctx, contract.PayloadService, s.payloadServer); err != nil {
			return nil, err
		}
	}
	if err = s.startHosts(ctx); err != nil {
		return nil, err
	}
	s.say("starting the operator")
	if s.Operator, err = s.newOperator(ctx); err != nil {
		return nil, err
	}
	return s, s.Operator.Start(ctx)
}

// startCluster takes a control plane from the pool. If it gets none, it starts a control plane and installs everything.
func (s *Scene) startCluster(ctx context.Context) error {
	lends := s.options.Planes.lends(s.options)
	if lends {
		s.lent = s.options.Planes.take(s.options)
	}
	s.began = time.Now()
	if s.lent != nil {
		s.say("taking a control plane that is running")
		s.Cluster = s.lent.cluster
		if err := s.connect(); err != nil {
			return err
		}
	} else if err := s.newCluster(ctx); err != nil {
		return err
	}
	if lends && s.lent == nil {
		baseline, err := s.Cluster.Baseline(ctx)
		if err != nil {
			return fmt.Errorf("reading what the control plane has: %w", err)
		}
		s.lent = &plane{cluster: s.Cluster, baseline: baseline, kind: kindOf(s.options)}
	}
	if s.lent != nil && !s.options.Kubernetes {
		if err := openshift.SetPlatform(ctx, s.Cluster.Admin(), s.claim()); err != nil {
			return err
		}
	}
	if !s.options.Scheduler {
		return nil
	}
	s.say("starting kube-scheduler")
	return s.Cluster.StartScheduler(ctx, s.options.Progress)
}

// newCluster starts a control plane and installs everything that the options require.
func (s *Scene) newCluster(ctx context.Context) (err error) {
	s.say("starting the control plane")
	podNetwork := ""
	if s.options.Kubernetes {
		podNetwork = kubeadm.PodNetwork
	}
	s.Cluster, err = cluster.Start(ctx, cluster.Options{
		Progress: s.options.Progress, DataDir: s.planeDir(), Keep: s.options.Keep,
		Audit: s.options.Audit, PodNetwork: podNetwork, SigningDuration: s.options.SigningDuration,
		AnyKubectl: s.options.AnyKubectl,
	})
	if err != nil {
		return fmt.Errorf("starting the control plane: %w", err)
	}
	if err = s.connect(); err != nil {
		return err
	}
	if s.options.Kubernetes {
		s.say("letting kubeadm write its objects")
		if err = kubeadm.Install(ctx, s.Cluster, s.options.Progress); err == nil && s.options.flannel() {
			err = kubeadm.InstallFlannel(ctx, s.Cluster)
		}
	} else {
		s.say("installing OpenShift's CRDs and objects")
		err = openshift.Install(ctx, s.Cluster.Admin(), s.claim())
	}
	if err != nil {
		return err
	}
	if err = s.ship(ctx); err != nil {
		return err
	}
	if s.options.OLM != "" && s.options.Bundle == "" {
		return openshift.InstallOLM(ctx, s.Cluster.Admin(), s.options.OLM)
	}
	return nil
}

// claim returns the options that make the control plane look like OpenShift.
func (s *Scene) claim() openshift.Options {
	return openshift.Options{APIServer: s.Cluster.URL, CA: s.Cluster.CAPEM, Platform: s.options.Platform}
}

// Requests iterates over the requests that the API server has received since the scene began. It requires
// Options.Audit.
func (s *Scene) Requests() iter.Seq2[cluster.Request, error] {
	return func(yield func(cluster.Request, error) bool) {
		for r, err := range cluster.Requests(s.Cluster.AuditLog) {
			if (err != nil || r.Received.After(s.began)) && !yield(r, err) {
				return
			}
		}
	}
}

// planeDir returns the directory for the data of the control plane. It is inside the directory of the scene, unless
// other scenes may use the control plane later.
func (s *Scene) planeDir() string {
	if s.options.Planes.lends(s.options) {
		return ""
	}
	return filepath.Join(s.Dir, "controlplane")
}

// connect creates the client of the scene.
func (s *Scene) connect() error {
	if err := s.lookHere(); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		machinev1beta1.Install(scheme)); err != nil {
		return fmt.Errorf("making a scheme: %w", err)
	}
	c, err := client.New(s.Cluster.Admin(), client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	s.Client = c
	return nil
}

func (s *Scene) startHosts(ctx context.Context) (err error) {
	if s.Key, err = NewKey(); err != nil {
		return err
	}
	options := s.options.Hosts
	options.AuthorizedKey = s.Key.Public
	if options.Programs == nil {
		options.Programs = Programs(payloadVersion)
	}
	options.Finish = s.place
	if err = s.useComputers(&options); err != nil {
		return err
	}
	s.say(fmt.Sprintf("starting %d Windows hosts", options.Count))
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	if s.Fleet, err = fleet.Start(running, options); err != nil {
		return fmt.Errorf("starting hosts: %w", err)
	}
	switch {
	case s.options.flannel():
	case s.options.Kubernetes:
		s.run(func() error { return s.bringNetwork(running) })
	default:
		s.run(func() error { return openshift.AssignSubnets(running, s.Cluster.Admin()) })
		s.run(func() error { return openshift.ApproveOverlays(running, s.Cluster.Admin()) })
		s.run(func() error { return openshift.FollowProxy(running, s.Cluster.Admin()) })
	}
	if s.options.onCloud() {
		if err = s.newCloud(); err != nil {
			return err
		}
		s.run(func() error { return s.Cloud.Run(running) })
	}
	if s.options.NoKey || s.options.ByItself {
		return nil
	}
	return s.PutKey(ctx, s.Key)
}

// run runs a function in the background. Close waits for it.
func (s *Scene) run(what func() error) {
	ended := make(chan error, 1)
	s.running = append(s.running, ended)
	go func() { ended <- what() }()
}

// payloadDir returns the directory of the payload for the operator. If the options have none, payloadDir creates one.
func (s *Scene) payloadDir() (string, error) {
	dir := filepath.Join(s.Dir, "payload")
	switch {
	case s.options.Payload == "":
		return dir, WritePayload(dir)
	case s.options.Complete:
		return dir, CompletePayload(dir, s.options.Payload)
	}
	return s.options.Payload, nil
}

// Close stops everything and removes all files, unless Options.Keep is set.
func (s *Scene) Close() error {
	var all []error
	if s.Operator != nil {
		all = append(all, s.Operator.Stop())
	}
	if s.cancel != nil {
		s.cancel()
	}
	if s.Fleet != nil {
		all = append(all, s.Fleet.Close())
	}
	for _, ended := range s.running {
		all = append(all, <-ended)
	}
	if s.options.ByItself && s.Client != nil {
		all = append(all, s.withdrawPayload())
	}
	switch {
	case s.lent != nil:
		all = append(all, s.options.Planes.give(context.Background(), s.lent))
	case s.Cluster != nil:
		all = append(all, s.Cluster.Stop())
	}
	for _, p := range s.ports {
		p.Release()
	}
	s.ports = nil
	return errors.Join(append(all, s.remove())...)
}

// holdPort reserves an address and a port on this computer for the operator.
func (s *Scene) holdPort(ctx context.Context) (address string, err error) {
	p, err := port.Hold(ctx)
	if err != nil {
		return "", err
	}
	s.ports = append(s.ports, p)
	return p.Address(), nil
}

// PutKey creates or updates the secret with the private key.
func (s *Scene) PutKey(ctx context.Context, key *Key) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.options.Namespace, Name: contract.PrivateKeySecret},
		Data:       map[string][]byte{contract.PrivateKeyField: key.PEM},
	}
	err := s.Client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		err = s.Client.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("writing the private key: %w", err)
	}
	return nil
}

// List writes the hosts to the ConfigMap windows-instances, and removes all other hosts from this ConfigMap.
func (s *Scene) List(ctx context.Context, hosts ...*fleet.Host) error {
	data := map[string]string{}
	for _, h := range hosts {
		key, value := h.Entry()
		data[key] = value
	}
	return s.ListRaw(ctx, data)
}

// ListRaw replaces the content of the ConfigMap windows-instances.
func (s *Scene) ListRaw(ctx context.Context, data map[string]string) error {
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.options.Namespace,
		Name: contract.InstancesConfigMap}, Data: data}
	err := s.Client.Create(ctx, list)
	if apierrors.IsAlreadyExists(err) {
		err = s.Client.Update(ctx, list)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", contract.InstancesConfigMap, err)
	}
	return nil
}

// Instance reads the WindowsInstance of a host.
func (s *Scene) Instance(ctx context.Context, host *fleet.Host) (*v1alpha1.WindowsInstance, error) {
	return s.InstanceNamed(ctx, NameOf(host))
}

// InstanceNamed reads a WindowsInstance by its name. The name is the result of NameOf, or the name of a Machine.
func (s *Scene) InstanceNamed(ctx context.Context, name string) (*v1alpha1.WindowsInstance, error) {
	instance := &v1alpha1.WindowsInstance{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.options.Namespace, Name: name},
		instance); err != nil {
		return nil, fmt.Errorf("reading instance %s: %w", name, err)
	}
	return instance, nil
}

// NameOf returns the name of a host's WindowsInstance. For a host in windows-instances, it is the host's address. For a
// host that joins by itself, it is the name of the host.
func NameOf(host *fleet.Host) string {
	if host.Server == nil {
		return host.Name
	}
	return host.Address().Addr().String()
}

func (s *Scene) say(what string) {
	fmt.Fprintf(s.options.Progress, "%s  %s\n", time.Now().Format("15:04:05"), what)
}
