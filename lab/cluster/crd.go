package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

const (
	// crdFieldManager owns the fields of the CRDs that InstallCRDs applies.
	crdFieldManager = "wmco-lab"
	// crdsAtOnce limits the number of concurrent requests.
	crdsAtOnce = 8
	// crdTimeout limits the wait for one CRD, which normally takes less than a second.
	crdTimeout = 30 * time.Second
	crdPoll    = 50 * time.Millisecond
)

// CRDOptions selects the CustomResourceDefinitions to install.
type CRDOptions struct {
	// Paths are YAML files, and folders whose .yaml and .yml files are read (without subfolders). Documents of other
	// kinds are ignored.
	Paths []string
	// Names are the CRDs to install, such as machines.machine.openshift.io. A missing CRD is an error. If empty, all
	// CRDs are installed. If Names is set, the other CRDs aren't parsed: OpenShift's CRDs are 8 MB of YAML.
	Names []string
	// Filter selects among the CRDs found. If nil, all are selected.
	Filter func(crd *apiextensionsv1.CustomResourceDefinition) bool
}

// InstallCRDs applies the selected CustomResourceDefinitions, waits until the API server serves each of them, and
// returns their names in order. It is idempotent. It returns an error if no CRD is selected, or if two selected CRDs
// have the same name. OpenShift has such CRDs, because a CRD can differ between feature sets.
func InstallCRDs(ctx context.Context, config *rest.Config, options CRDOptions) ([]string, error) {
	chosen, err := readCRDs(options)
	if err != nil {
		return nil, fmt.Errorf("reading custom resource definitions: %w", err)
	}
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{} // ignore warnings about schemas that this project can't change
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(crdsAtOnce)
	names := make([]string, 0, len(chosen))
	for name, definition := range chosen {
		names = append(names, name)
		group.Go(func() error { return installCRD(ctx, client, definition) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// installCRD applies one CRD and waits until it is served.
func installCRD(ctx context.Context, client clientset.Interface, definition crdDocument) error {
	name := definition.crd.Name
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	force := true
	_, err := crds.Patch(ctx, name, types.ApplyPatchType, definition.manifest,
		metav1.PatchOptions{FieldManager: crdFieldManager, Force: &force})
	if err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	err = wait.PollUntilContextTimeout(ctx, crdPoll, crdTimeout, true, func(ctx context.Context) (bool, error) {
		crd, err := crds.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return established(crd)
	})
	if err != nil {
		return fmt.Errorf("waiting until %s is established: %w", name, err)
	}
	err = wait.PollUntilContextTimeout(ctx, crdPoll, crdTimeout, true, func(context.Context) (bool, error) {
		return served(client.Discovery(), definition.crd)
	})
	if err != nil {
		return fmt.Errorf("waiting until %s is served: %w", name, err)
	}
	return nil
}

// The function established reports whether the API server has accepted the CRD. If another CRD uses its names,
// established returns an error, because waiting would not help.
func established(crd *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.NamesAccepted && condition.Status == apiextensionsv1.ConditionFalse {
			return false, fmt.Errorf("its names are refused: %s", condition.Message)
		}
		if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
			return true, nil
		}
	}
	return false, nil
}

// The function served reports whether discovery lists the resource in each served version. Clients use discovery to map
// kinds to resources, and discovery is updated slightly after the CRD is established.
func served(client discovery.DiscoveryInterface, crd *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	for _, version := range crd.Spec.Versions {
		if !version.Served {
			continue
		}
		list, err := client.ServerResourcesForGroupVersion(crd.Spec.Group + "/" + version.Name)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(list.APIResources,
			func(r metav1.APIResource) bool { return r.Name == crd.Spec.Names.Plural }) {
			return false, nil
		}
	}
	return true, nil
}
