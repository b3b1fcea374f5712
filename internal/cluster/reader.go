package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	machineconfigurationv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	authorizationv1 "k8s.io/api/authorization/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Versioner returns the version of an API server. A discovery client is a Versioner.
type Versioner interface {
	// ServerVersion sends a request to the API server each time.
	ServerVersion() (*version.Info, error)
}

// Options are the options of a Reader or a Plain.
type Options struct {
	// Cached reads the objects that Inputs returns, for example through a manager's client.
	Cached client.Reader
	// Live reads objects that should not be cached, such as the bootstrap Secret and large rendered MachineConfigs.
	Live client.Reader
	// Version returns the version of the API server that the operator is connected to.
	Version Versioner
	// At returns a Versioner for the API server at an address. If At is nil, the operator uses only Version.
	At func(address string) (Versioner, error)
	// Lookup resolves a name by DNS, like net.Resolver's LookupHost. If it is nil, the operator resolves no name.
	Lookup func(ctx context.Context, host string) (addresses []string, err error)
	// Namespace is the operator's namespace.
	Namespace string
	// Access is the client for reviews of other users' rights.
	Access authorizationv1client.SubjectAccessReviewInterface
	// Proxy is the proxy in the operator's own environment. Nodes use it if the cluster configures no proxy.
	Proxy blueprint.Proxy
}

// common reads the objects that exist in every kind of cluster.
type common struct {
	Options
	memory *memory
	// resolved is the last successful DNS lookup.
	resolved *resolution
}

// Reader reads the facts of an OpenShift cluster.
type Reader struct{ common }

var _ Source = (*Reader)(nil)

// NewReader returns a Reader. All options except At, Lookup and Proxy are required.
func NewReader(o Options) (*Reader, error) {
	c, err := newCommon(o)
	if err != nil {
		return nil, err
	}
	return &Reader{common: c}, nil
}

func newCommon(o Options) (common, error) {
	if o.Cached == nil || o.Live == nil || o.Version == nil || o.Access == nil || o.Namespace == "" {
		return common{}, errors.New(
			"a reader of clusters needs a cached and a live client, a versioner, access reviews and a namespace")
	}
	return common{Options: o, memory: &memory{}, resolved: &resolution{}}, nil
}

// AddToScheme adds OpenShift's types to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(configv1.Install(scheme), operatorv1.Install(scheme), operatorv1alpha1.Install(scheme),
		machineconfigurationv1.Install(scheme))
}

// Facts implements Source.
func (r *Reader) Facts(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec) (blueprint.Facts, error) {
	var facts blueprint.Facts
	var all []error
	additional := func(ctx context.Context, facts *blueprint.Facts) error {
		return r.additionalCA(ctx, facts, spec.Trust.AdditionalCA)
	}
	for _, read := range []func(context.Context, *blueprint.Facts) error{
		r.serverVersion, r.infrastructure, r.network, r.serviceCIDRs, r.hybridOverlay, r.kubeletCA, r.worker,
		r.bootstrapCA, r.clusterProxy, r.image, additional, r.pullSecret, r.digestMirrors,
		r.contentSourcePolicies, r.tagMirrors, r.services, r.bootstrapper,
	} {
		all = append(all, read(ctx, &facts))
	}
	if err := errors.Join(all...); err != nil {
		return blueprint.Facts{}, err
	}
	r.resolve(ctx, &facts)
	facts.Rejected = append(facts.Rejected, settingsNotHere(spec)...)
	return facts, nil
}

// bootstrapper adds a problem to facts.Troubles if hosts lack the rights to join. Joined nodes don't need these rights.
func (r *Reader) bootstrapper(ctx context.Context, facts *blueprint.Facts) error {
	err := r.granted(ctx, facts)
	if problem, ok := contract.AsProblem(err); ok {
		facts.Troubles, err = append(facts.Troubles, problem), nil
	}
	return err
}

// services adds a problem to facts.Troubles if kube-proxy isn't allowed to list EndpointSlices. On Windows nodes,
// kube-proxy uses kubelet's identity. The Node authorizer lets this identity read Services, but not EndpointSlices.
func (r *common) services(ctx context.Context, facts *blueprint.Facts) error {
	const nodes = "system:nodes"
	allowed, err := r.allowed(ctx, facts, authorizationv1.SubjectAccessReviewSpec{
		User: "system:node:windows", Groups: []string{nodes, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "discovery.k8s.io", Verb: "list",
			Resource: "endpointslices"},
	})
	if err == nil && !allowed {
		facts.Troubles = append(facts.Troubles, contract.NewProblem(contract.ReasonServicesNotGranted,
			"the group %s may not list EndpointSlices", nodes))
	}
	return err
}

// The method `granted` returns a problem if hosts aren't allowed to create certificate requests. A kubelet creates such
// a request before its host is a node. Without the right, each join would fail.
func (r *common) granted(ctx context.Context, facts *blueprint.Facts) error {
	const accounts = "system:serviceaccounts"
	spec := authorizationv1.SubjectAccessReviewSpec{
		User:   contract.BootstrapUser(r.Namespace),
		Groups: []string{accounts, accounts + ":" + r.Namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "certificates.k8s.io", Verb: "create",
			Resource: "certificatesigningrequests"},
	}
	allowed, err := r.allowed(ctx, facts, spec)
	if err == nil && !allowed {
		return contract.NewProblem(contract.ReasonBootstrapNotGranted, "%s may not create CertificateSigningRequests",
			spec.User)
	}
	return err
}

// The method `allowed` asks the API server whether a user has a right. If the operator isn't allowed to ask,
// facts.Troubles gets a problem, and the result is true, because the user probably has the right.
func (r *common) allowed(ctx context.Context, facts *blueprint.Facts,
	spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	answer, err := r.Access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		facts.Troubles = append(facts.Troubles, incomplete(
			"the rights of %s may not be reviewed: apply the operator's manifests again to restore its "+
				"rights", spec.User))
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reviewing the rights of %s: %w", spec.User, err)
	}
	return answer.Status.Allowed, nil
}

// serviceCIDRs adds the prefixes of all ServiceCIDRs (since Kubernetes 1.33) to facts.ServiceNetworks. No host may have
// such an address, and nodes reach such addresses without a proxy. Until the operator has read existing ServiceCIDRs
// once, no host can join. If a cluster without OpenShift has a proxy, joined nodes get no changes until then either.
func (r *common) serviceCIDRs(ctx context.Context, facts *blueprint.Facts) error {
	var list networkingv1.ServiceCIDRList
	const name = "ServiceCIDRs"
	prefixes, err := last(ctx, r, facts, name, func() (prefixes []netip.Prefix, err error) {
		err = listed(ctx, r.Live, &list, name, client.Limit(maxServiceCIDRs))
		for _, object := range list.Items {
			prefixes = append(prefixes, legal(object.Spec.CIDRs)...)
		}
		return prefixes, err
	})
	prefixes, err = orWait(facts, prefixes, err)
	for _, prefix := range prefixes {
		if !slices.Contains(facts.ServiceNetworks, prefix) {
			facts.ServiceNetworks = append(facts.ServiceNetworks, prefix)
		}
	}
	return err
}

// maxServiceCIDRs limits how many ServiceCIDRs are read. No cluster has so many.
const maxServiceCIDRs = 500

// get reads one object. If an administrator can fix the error, the error is a problem that contains the object's name.
func get(ctx context.Context, reader client.Reader, object client.Object, key client.ObjectKey, name string) error {
	err := reader.Get(ctx, key, object)
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err):
		return absent("%s can't be read: the cluster does not have this kind of object, so it is not OpenShift", name)
	case apierrors.IsNotFound(err):
		return absent("%s does not exist", name)
	case apierrors.IsForbidden(err):
		return incomplete("%s may not be read: apply the operator's manifests again to restore its rights", name)
	}
	return fmt.Errorf("reading %s: %w", name, err)
}

func incomplete(format string, args ...any) *contract.Problem {
	return contract.NewProblem(contract.ReasonClusterFactsIncomplete, format, args...)
}

func unsupported(format string, args ...any) *contract.Problem {
	return contract.NewProblem(contract.ReasonNetworkUnsupported, format, args...)
}
