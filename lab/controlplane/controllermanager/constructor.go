package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/dynamic"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/approver"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/certificates/signer"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/nodeipam"
	"k8s.io/kubernetes/pkg/controller/nodeipam/ipam"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/controller/ttl"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
	"k8s.io/kubernetes/pkg/generated/openapi"
	token "k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/windows-nodes/wmco/lab/controlplane/podgc"
)

// constructor creates a controller with its own client. The numbers of workers and the rates are the defaults of
// kube-controller-manager.
type constructor func(ctx context.Context, c *control, client kubernetes.Interface) (loop, error)

// constructors returns the controllers by their names in kube-controller-manager.
func constructors() map[string]constructor {
	return map[string]constructor{
		"certificatesigningrequest-signing-controller":   signing,
		"certificatesigningrequest-cleaner-controller":   cleaning,
		"certificatesigningrequest-approving-controller": approving,
		"clusterrole-aggregation-controller":             clusterRoles,
		"daemonset-controller":                           daemonSets,
		"deployment-controller":                          deployments,
		"replicaset-controller":                          replicaSets,
		"disruption-controller":                          disruptions,
		"endpointslice-controller":                       endpointSlices,
		"pod-garbage-collector-controller":               podGarbage,
		"garbage-collector-controller":                   garbage,
		"namespace-controller":                           namespaces,
		"node-ipam-controller":                           nodeIPAM,
		"node-lifecycle-controller":                      nodeLifecycle,
		"taint-eviction-controller":                      taintEviction,
		"root-ca-certificate-publisher-controller":       rootCA,
		"serviceaccount-controller":                      serviceAccounts,
		"serviceaccount-token-controller":                serviceAccountTokens,
		"ttl-controller":                                 ttls,
		"validatingadmissionpolicy-status-controller":    policyStatus,
	}
}

// The function workers returns a loop that runs a controller with a number of workers.
func workers(run func(context.Context, int), number int) loop {
	return func(ctx context.Context) { run(ctx, number) }
}

// The function signing returns the loop that signs requests with one CA, for all signers of Kubernetes.
func signing(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	requests := c.shared.Certificates().V1().CertificateSigningRequests()
	var signers []*signer.CSRSigningController
	for _, construct := range []func(context.Context, kubernetes.Interface,
		certificatesinformers.CertificateSigningRequestInformer, string, string, time.Duration,
	) (*signer.CSRSigningController, error){
		signer.NewKubeletServingCSRSigningController,
		signer.NewKubeletClientCSRSigningController,
		signer.NewKubeAPIServerClientCSRSigningController,
		signer.NewLegacyUnknownCSRSigningController,
	} {
		o := c.options
		made, err := construct(ctx, client, requests, o.signingCert, o.signingKey, o.signingDuration)
		if err != nil {
			return nil, err
		}
		signers = append(signers, made)
	}
	return func(ctx context.Context) {
		for _, s := range signers {
			go s.Run(ctx, 5)
		}
	}, nil
}

func cleaning(_ context.Context, c *control, client kubernetes.Interface) (loop, error) {
	return workers(cleaner.NewCSRCleanerController(client.CertificatesV1().CertificateSigningRequests(),
		c.shared.Certificates().V1().CertificateSigningRequests()).Run, 1), nil
}

func approving(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	return workers(approver.NewCSRApprovingController(ctx, client,
		c.shared.Certificates().V1().CertificateSigningRequests()).Run, 5), nil
}

func clusterRoles(_ context.Context, c *control, client kubernetes.Interface) (loop, error) {
	return workers(clusterroleaggregation.NewClusterRoleAggregation(c.shared.Rbac().V1().ClusterRoles(),
		client.RbacV1()).Run, 5), nil
}

func daemonSets(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	made, err := daemon.NewDaemonSetsController(ctx, c.shared.Apps().V1().DaemonSets(),
		c.shared.Apps().V1().ControllerRevisions(), c.shared.Core().V1().Pods(), c.shared.Core().V1().Nodes(),
		client, flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	if err != nil {
		return nil, err
	}
	return workers(made.Run, 2), nil
}

func deployments(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	made, err := deployment.NewDeploymentController(ctx, c.shared.Apps().V1().Deployments(),
		c.shared.Apps().V1().ReplicaSets(), c.shared.Core().V1().Pods(), client)
	if err != nil {
		return nil, err
	}
	return workers(made.Run, 5), nil
}

func replicaSets(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	return workers(replicaset.NewReplicaSetController(ctx, c.shared.Apps().V1().ReplicaSets(),
		c.shared.Core().V1().Pods(), client, replicaset.BurstReplicas).Run, 5), nil
}

func disruptions(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	scales, err := scale.NewForConfig(c.as("disruption-controller"), c.mapper, dynamic.LegacyAPIPathResolverFunc,
		scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return nil, err
	}
	return disruption.NewDisruptionController(ctx, c.shared.Core().V1().Pods(),
		c.shared.Policy().V1().PodDisruptionBudgets(), c.shared.Core().V1().ReplicationControllers(),
		c.shared.Apps().V1().ReplicaSets(), c.shared.Apps().V1().Deployments(), c.shared.Apps().V1().StatefulSets(),
		client, c.mapper, scales, client.Discovery()).Run, nil
}

func endpointSlices(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	const endpointsInSlice, batchPeriod = 100, 0
	return workers(endpointslice.NewController(ctx, c.shared.Core().V1().Pods(), c.shared.Core().V1().Services(),
		c.shared.Core().V1().Nodes(), c.shared.Discovery().V1().EndpointSlices(), endpointsInSlice, client,
		batchPeriod).Run, 5), nil
}

func podGarbage(_ context.Context, c *control, client kubernetes.Interface) (loop, error) {
	return podgc.New(client, c.shared.Core().V1().Pods(), c.shared.Core().V1().Nodes()).Run, nil
}

func garbage(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	const period = 30 * time.Second
	config := c.as("garbage-collector-controller")
	config.QPS *= 2
	partial, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	made, err := garbagecollector.NewGarbageCollector(ctx, client, partial, c.mapper,
		garbagecollector.DefaultIgnoredResources(), informerfactory.NewInformerFactory(c.shared, c.metadata), c.started)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		go made.Sync(ctx, client.Discovery(), period)
		made.Run(ctx, 20, period)
	}, nil
}

// The function namespaces raises the rate limit as upstream does, because the deletion of a namespace lists every kind.
func namespaces(ctx context.Context, c *control, _ kubernetes.Interface) (loop, error) {
	config := c.as("namespace-controller")
	config.QPS *= 20
	config.Burst *= 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	partial, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return workers(namespace.NewNamespaceController(ctx, client, partial,
		client.Discovery().ServerPreferredNamespacedResources, c.shared.Core().V1().Namespaces(), 5*time.Minute,
		corev1.FinalizerKubernetes).Run, 10), nil
}

// nodeIPAM gives each node 256 addresses for pods.
func nodeIPAM(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	if !c.options.allocateNodeCIDRs {
		return nil, errors.New("it needs --allocate-node-cidrs")
	}
	_, network, err := net.ParseCIDR(c.options.clusterCIDR)
	if err != nil {
		return nil, fmt.Errorf("reading --cluster-cidr: %w", err)
	}
	made, err := nodeipam.NewNodeIpamController(ctx, c.shared.Core().V1().Nodes(), nil, client,
		[]*net.IPNet{network}, nil, nil, []int{24}, ipam.RangeAllocatorType)
	if err != nil {
		return nil, err
	}
	return made.Run, nil
}

func nodeLifecycle(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	const (
		evictionRate, secondaryEvictionRate float32 = 0.1, 0.01
		largeCluster                                = 50
		unhealthyZone                       float32 = 0.55
	)
	o := c.options
	made, err := nodelifecycle.NewNodeLifecycleController(ctx, c.shared.Coordination().V1().Leases(),
		c.shared.Core().V1().Pods(), c.shared.Core().V1().Nodes(), c.shared.Apps().V1().DaemonSets(), client,
		o.monitorPeriod, o.startupGrace, o.monitorGrace, evictionRate, secondaryEvictionRate, largeCluster,
		unhealthyZone)
	if err != nil {
		return nil, err
	}
	return made.Run, nil
}

func taintEviction(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	made, err := tainteviction.New(ctx, client, c.shared.Core().V1().Pods(), c.shared.Core().V1().Nodes(),
		"taint-eviction-controller")
	if err != nil {
		return nil, err
	}
	return made.Run, nil
}

func rootCA(_ context.Context, c *control, client kubernetes.Interface) (loop, error) {
	ca, err := os.ReadFile(c.options.rootCA)
	if err != nil {
		return nil, fmt.Errorf("reading --root-ca-file: %w", err)
	}
	made, err := rootcacertpublisher.NewPublisher(c.shared.Core().V1().ConfigMaps(), c.shared.Core().V1().Namespaces(),
		client, ca)
	if err != nil {
		return nil, err
	}
	return workers(made.Run, 1), nil
}

func serviceAccounts(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	made, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx),
		c.shared.Core().V1().ServiceAccounts(), c.shared.Core().V1().Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, err
	}
	return workers(made.Run, 1), nil
}

func serviceAccountTokens(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	key, err := keyutil.PrivateKeyFromFile(c.options.tokenKey)
	if err != nil {
		return nil, fmt.Errorf("reading --service-account-private-key-file: %w", err)
	}
	ca, err := os.ReadFile(c.options.rootCA)
	if err != nil {
		return nil, fmt.Errorf("reading --root-ca-file: %w", err)
	}
	generator, err := token.JWTTokenGenerator(token.LegacyIssuer, key)
	if err != nil {
		return nil, err
	}
	made, err := serviceaccount.NewTokensController(klog.FromContext(ctx), c.shared.Core().V1().ServiceAccounts(),
		c.shared.Core().V1().Secrets(), client,
		serviceaccount.TokensControllerOptions{TokenGenerator: generator, RootCA: ca})
	if err != nil {
		return nil, err
	}
	return workers(made.Run, 5), nil
}

func ttls(ctx context.Context, c *control, client kubernetes.Interface) (loop, error) {
	return workers(ttl.NewTTLController(ctx, c.shared.Core().V1().Nodes(), client).Run, 5), nil
}

func policyStatus(_ context.Context, c *control, client kubernetes.Interface) (loop, error) {
	schemas := resolver.NewDefinitionsSchemaResolver(openapi.GetOpenAPIDefinitions, scheme.Scheme,
		apiextensionsscheme.Scheme).Combine(&resolver.ClientDiscoveryResolver{Discovery: client.Discovery()})
	made, err := validatingadmissionpolicystatus.NewController(
		c.shared.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		client.AdmissionregistrationV1().ValidatingAdmissionPolicies(),
		&validating.TypeChecker{SchemaResolver: schemas, RestMapper: c.mapper})
	if err != nil {
		return nil, err
	}
	return workers(made.Run, 5), nil
}
