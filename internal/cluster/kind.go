package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	machineconfigurationv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// Discovery lists the groups and kinds of an API server.
type Discovery interface {
	// GroupsAndMaybeResources returns all groups, and an error for each group version whose resources are unknown.
	GroupsAndMaybeResources() (groups *metav1.APIGroupList,
		resources map[schema.GroupVersion]*metav1.APIResourceList, failed map[schema.GroupVersion]error, err error)
}

var _ Discovery = (*discovery.DiscoveryClient)(nil)

// readGroups returns the API groups, defined by CRDs, whose kinds the operator looks up when it starts.
func readGroups() []string {
	return []string{v1alpha1.Group, configv1.GroupName, operatorv1.GroupName, machineconfigurationv1.GroupName,
		machinev1beta1.GroupName}
}

// KindReader returns a client that reads the Infrastructure object, which exists only on OpenShift. The client doesn't
// use discovery. So it also works while an API server serves the kind but doesn't list it yet.
func KindReader(config *rest.Config) (client.Reader, error) {
	scheme := runtime.NewScheme()
	if err := configv1.Install(scheme); err != nil {
		return nil, fmt.Errorf("making a scheme: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{configv1.GroupVersion})
	mapper.Add(configv1.GroupVersion.WithKind("Infrastructure"), meta.RESTScopeRoot)
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return c, nil
}

// IsOpenShift reports whether the cluster is OpenShift. On OpenShift, an Infrastructure object exists from the
// installation on. A CRD in OpenShift's group proves nothing, because users copy such CRDs to other clusters. While an
// API server starts, its answers may be incomplete. Then IsOpenShift returns an error.
func IsOpenShift(ctx context.Context, server Discovery, objects client.Reader) (bool, error) {
	groups, _, failed, err := server.GroupsAndMaybeResources()
	if err != nil {
		return false, fmt.Errorf("listing the API groups of the cluster: %w", err)
	}
	offers := func(name string) bool {
		return slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == name })
	}
	// An API server that has just started may not list the groups of CRDs yet. The operator's own group always exists,
	// so if it is missing, the list is incomplete.
	if !offers(v1alpha1.Group) {
		return false, fmt.Errorf("listing the API groups of the cluster: %s is not among them; apply the operator's "+
			"CRDs", v1alpha1.Group)
	}
	// If discovery of a group is stale, the operator can't watch the group's objects, on OpenShift or elsewhere.
	if stale := staleOf(failed); len(stale) > 0 {
		return false, fmt.Errorf("listing the API groups of the cluster: the API server doesn't know the resources "+
			"of %s yet; wait until the API server has started, or read its log: "+
			"%w", strings.Join(stale, ", "), errStale)
	}
	list := &configv1.InfrastructureList{}
	err = objects.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: singleton})
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err) && !offers(configv1.GroupName):
		// The cluster lacks OpenShift's API group, so its administrator may have omitted the rights for it.
		return false, nil
	case apierrors.IsForbidden(err):
		return false, fmt.Errorf("reading %s to find out whether this is OpenShift; apply the operator's manifests "+
			"again to restore its rights: %w", nameInfrastructure, err)
	case err != nil:
		return false, fmt.Errorf("reading %s to find out whether this is OpenShift: %w", nameInfrastructure, err)
	}
	return len(list.Items) > 0, nil
}

var errStale = errors.New("discovery is stale")

// staleOf lists the group versions, in the groups of readGroups, whose resources are unknown.
func staleOf(failed map[schema.GroupVersion]error) (stale []string) {
	groups := readGroups()
	for version := range failed {
		if slices.Contains(groups, version.Group) {
			stale = append(stale, version.String())
		}
	}
	slices.Sort(stale)
	return stale
}

// Served reports whether the API server has a kind. The first call of RESTMapping uses the list of all groups. If
// discovery of the kind's group is stale, the group is missing in this list, and the call fails. Then the second call
// requests this version of the group from the API server.
func Served(mapper meta.RESTMapper, kind schema.GroupVersionKind) (bool, error) {
	_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if failed := (*apiutil.ErrResourceDiscoveryFailed)(nil); errors.As(err, &failed) {
		_, err = mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}
