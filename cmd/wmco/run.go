package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/csr"
	"github.com/windows-nodes/wmco/internal/controller/instance"
	"github.com/windows-nodes/wmco/internal/controller/machine"
	"github.com/windows-nodes/wmco/internal/controller/orphan"
	"github.com/windows-nodes/wmco/internal/controller/problem"
	"github.com/windows-nodes/wmco/internal/controller/publish"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
	"github.com/windows-nodes/wmco/internal/controller/settings"
	"github.com/windows-nodes/wmco/internal/controller/source"
	"github.com/windows-nodes/wmco/internal/controller/userdata"
	"github.com/windows-nodes/wmco/internal/controller/workload"
	"github.com/windows-nodes/wmco/internal/host/callhost"
	"github.com/windows-nodes/wmco/internal/host/sshhost"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/olm"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/pods"
	"github.com/windows-nodes/wmco/internal/version"
)

func run(ctx context.Context, o options) error {
	boundHeap(o.environment)
	verbosity := 0
	if o.debug {
		verbosity = 4
	}
	log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(verbosity)))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	restConfig, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	// Don't limit the rate of requests, because a change for hundreds of nodes needs hundreds of writes at once. The
	// number of workers limits concurrent requests, and the API server protects itself with priority and fairness.
	restConfig.QPS = -1
	shipped, err := payload.OpenDir(o.payload)
	if err != nil {
		return fmt.Errorf("opening the payload: %w", err)
	}
	logging, err := blueprint.LoggingFromEnvironment(o.environment)
	if err != nil {
		log.Error(err, "log settings are invalid, so their defaults are used")
	}
	clients, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	claimer, err := claimNodes(logr.NewContext(ctx, log), restConfig, clients, o.namespace)
	if err != nil {
		return err
	}
	var installer *olm.Installer
	if o.olm {
		if installer, err = installRest(ctx, restConfig, o.namespace); err != nil {
			return err
		}
	}
	openShift, err := recognise(ctx, restConfig, log)
	if err != nil {
		return err
	}
	mgr, err := newManager(restConfig, o, openShift)
	if err != nil {
		return err
	}
	facts, err := newReader(mgr, o, clients, openShift)
	if err != nil {
		return err
	}
	if err = addControllers(mgr, o, clients, facts, shipped, logging); err != nil {
		return err
	}
	if err = mgr.Add(claimer); err != nil {
		return fmt.Errorf("adding the renewal of the claim: %w", err)
	}
	if installer != nil {
		if err = mgr.Add(installer); err != nil {
			return fmt.Errorf("adding the installer of objects that OLM leaves out: %w", err)
		}
	}
	logStart(log, shipped, openShift)
	return mgr.Start(ctx)
}

// installRest applies all objects that OLM can't install, before other parts of the operator need them.
func installRest(ctx context.Context, restConfig *rest.Config, namespace string) (*olm.Installer, error) {
	c, err := client.New(restConfig, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	installer, err := olm.New(c, namespace)
	if err != nil {
		return nil, err
	}
	return installer, installer.Install(ctx)
}

// discoveryTimeout limits how long the operator waits until a newly started API server lists the groups of CRDs.
const discoveryTimeout = time.Minute

// recognise finds out whether the cluster is OpenShift. It retries while the API server starts.
func recognise(ctx context.Context, restConfig *rest.Config, log logr.Logger) (openShift bool, err error) {
	groups, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return false, fmt.Errorf("making a client: %w", err)
	}
	objects, err := cluster.KindReader(restConfig)
	if err != nil {
		return false, err
	}
	err = untilReady(ctx, log, "which kind of cluster this is", func(ctx context.Context) (bool, error) {
		openShift, err = cluster.IsOpenShift(ctx, groups, objects)
		return false, err
	})
	return openShift, err
}

// untilReady calls the function `try` every second until the function succeeds, the error is final, or discoveryTimeout
// is over. It logs each new error at once, because the wait may be in vain, for example if a token is invalid.
func untilReady(ctx context.Context, log logr.Logger, what string,
	try func(ctx context.Context) (final bool, err error)) (err error) {
	logged := ""
	waited := wait.PollUntilContextTimeout(ctx, time.Second, discoveryTimeout, true,
		func(ctx context.Context) (final bool, _ error) {
			final, err = try(ctx)
			if apierrors.IsUnauthorized(err) {
				err = fmt.Errorf("the API server refuses the operator's token: %w; restart the operator's pod", err)
			}
			if err != nil && !final && err.Error() != logged {
				logged = err.Error()
				log.Info("waiting until it is known "+what, "reason", logged, "limit", discoveryTimeout.String())
			}
			return err == nil || final, nil
		})
	return cmp.Or(err, waited)
}

func newReader(mgr ctrl.Manager, o options, clients kubernetes.Interface, openShift bool) (cluster.Source, error) {
	options := cluster.Options{
		Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Version: clients.Discovery(),
		At: cluster.At(mgr.GetConfig()), Lookup: net.DefaultResolver.LookupHost, Namespace: o.namespace,
		Access: clients.AuthorizationV1().SubjectAccessReviews(),
		Proxy:  blueprint.ProxyFromEnvironment(o.environment),
	}
	if openShift {
		return cluster.NewReader(options)
	}
	return cluster.NewPlain(options)
}

// newManager creates a manager. Its cache contains only objects that the operator has the right to read.
func newManager(restConfig *rest.Config, o options, openShift bool) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), cluster.AddToScheme(scheme),
		machine.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("making a scheme: %w", err)
	}
	byObject := map[client.Object]cache.ByObject{
		&v1alpha1.WindowsInstance{}:                 {Namespaces: map[string]cache.Config{o.namespace: {}}},
		&certificatesv1.CertificateSigningRequest{}: {Transform: csr.Trim},
		&corev1.Node{}:                              {Transform: journey.TrimNode},
		&v1alpha1.WindowsMachineConfig{}: {Field: fields.OneTermEqualSelector("metadata.name",
			contract.MachineConfigObject)},
	}
	inputs := cluster.PlainInputs(o.namespace)
	if openShift {
		inputs = cluster.Inputs(o.namespace)
	}
	maps.Copy(byObject, publish.CacheByObject(o.namespace, inputs))
	lock, err := leaderLock(restConfig, o)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme, HealthProbeBindAddress: o.health, GracefulShutdownTimeout: new(5 * time.Second),
		NewCache: publish.NewCache,
		Cache:    cache.Options{ByObject: byObject, DefaultTransform: cache.TransformStripManagedFields()},
		Metrics: metricsserver.Options{
			BindAddress: o.metrics, SecureServing: true, FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		LeaderElection: lock != nil, LeaderElectionResourceLockInterface: lock, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: new(leaseDuration), RenewDeadline: new(renewDeadline), RetryPeriod: new(retryPeriod),
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if err = errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, fmt.Errorf("adding the probes: %w", err)
	}
	return mgr, nil
}

func addControllers(mgr ctrl.Manager, o options, clients kubernetes.Interface, facts cluster.Source,
	shipped *payload.Dir, logging blueprint.Logging) error {
	payloadAddresses, err := addPayloadServer(mgr, o, clients, shipped)
	if err != nil {
		return err
	}
	desired, err := publish.Setup(mgr, publish.Options{
		Namespace: o.namespace, Facts: facts, Payload: shipped.Manifest(), PayloadSource: payloadAddresses,
		Logging: logging, OperatorVersion: version.Version(), Grace: o.retain, Now: time.Now,
		Registry: metrics.Registry,
	})
	if err != nil {
		return err
	}
	parse := credential.RememberLast(func(pem []byte) (string, error) {
		key, err := sshhost.ParseKey(pem)
		return key.Hash, err
	})
	keys := credential.SecretKey{Reader: mgr.GetClient(), Namespace: o.namespace, Parse: parse}
	machines := machine.NewView(mgr.GetAPIReader())
	slots, err := rollout.New(rollout.Options{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Writer: mgr.GetClient(), Sets: machines, Namespace: o.namespace})
	if err != nil {
		return err
	}
	podClient, err := pods.NewClient(mgr.GetConfig())
	if err != nil {
		return err
	}
	workloads, err := workload.Setup(mgr, podClient)
	if err != nil {
		return err
	}
	problems := problem.NewState()
	usedTokens := csr.NewUsedTokens() // one controller writes it, a different one reads it
	contact := userdata.FirstContact{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: o.namespace,
		Platform: desired.Platform}
	issuer := credential.Issuer{Client: clients, Namespace: o.namespace}
	journeys := journey.Options{
		Client: mgr.GetClient(), Pods: podClient, Dialer: sshhost.New(sshhost.Options{}),
		Calls:       callhost.Calls{Client: mgr.GetClient(), Namespace: o.namespace},
		Invitations: issuer, Payload: shipped, Desired: desired, Keys: keys, Tokens: issuer, Now: time.Now,
		Namespace: o.namespace, Origins: machines, DaemonTimeout: o.daemonTimeout,
		FirstContact: contact, Misplaced: workloads.Misplaced, IsTokenUsed: usedTokens.Has,
	}
	return errors.Join(
		userdata.Setup(mgr, userdata.Options{Namespace: o.namespace, Platform: desired.Platform,
			PublicKey: publicKey(keys), Join: journeys.MachinesCommand, Problems: problems, Now: time.Now}),
		csr.Setup(mgr, csr.Options{Namespace: o.namespace, OperatorUser: csr.OperatorUser(o.namespace),
			BootstrapUser:  contract.BootstrapUser(o.namespace),
			ServiceNetwork: desired.ServiceNetwork, Reserved: desired.Reserved, UsedTokens: usedTokens,
			Machine: contact.Machine}),
		source.Setup(mgr, o.namespace, problems),
		orphan.Setup(mgr, o.namespace),
		slots.Setup(mgr),
		settings.Setup(mgr, settings.Options{
			Namespace: o.namespace, Keys: keys, Desired: desired,
			Missing:           shipped.Manifest().Missing,
			OperatorCondition: valueOr(o.environment, "OPERATOR_CONDITION_NAME", ""),
			Troubles:          problems,
		}),
		instance.Setup(mgr, journeys, slots, desired.Changed(), workloads.Changed()),
		machine.Setup(mgr, machine.Options{
			Namespace: o.namespace, Platform: desired.Platform, Changed: desired.Changed(), View: machines,
			Rollout:  slots,
			Problems: problems, RefusalTimeout: o.machineRefusal, UserData: contact.Authorizes,
			ByItself: contact.ByItself, Now: time.Now,
			Keys: keys, LiveKeys: credential.SecretKey{Reader: mgr.GetAPIReader(), Namespace: o.namespace, Live: true,
				Parse: parse},
		}),
	)
}

func publicKey(keys credential.SecretKey) func(ctx context.Context) (userdata.PublicKey, error) {
	return func(ctx context.Context) (userdata.PublicKey, error) {
		private, err := keys.PrivateKey(ctx)
		if err != nil {
			return userdata.PublicKey{}, err
		}
		key, err := sshhost.ParseKey(private.PEM)
		return userdata.PublicKey{Line: key.Line, Hash: key.Hash}, err
	}
}

func logStart(log logr.Logger, directory *payload.Dir, openShift bool) {
	manifest := directory.Manifest()
	log.Info("starting", "version", version.Version(), "payload", manifest.Version, "files", len(manifest.Files),
		"openShift", openShift)
	for _, m := range manifest.Missing {
		log.Info("payload lacks a file, so a feature is off", "file", m.Name, "feature", m.Feature, "reason", m.Reason)
	}
}
