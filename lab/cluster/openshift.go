package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// openShiftModule contains the real CRDs of OpenShift. The wmco module pins its version.
const openShiftModule = "github.com/openshift/api"

// OpenShiftCRDDirs returns the folders of the pinned OpenShift API module that contain the CRDs of the given group
// versions, each named by its folder in the module: "config/v1", "machine/v1beta1", "operator/v1",
// "machineconfiguration/v1". If the module isn't in the cache, it is downloaded. (The folder payload-manifests/crds of
// the module is incomplete: as of July 2026, it lacks Machines and operator networks.)
func OpenShiftCRDDirs(ctx context.Context, groupVersions ...string) ([]string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", openShiftModule)
	cmd.Dir = root
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", openShiftModule, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return nil, fmt.Errorf("finding %s: %w", openShiftModule, err)
	}
	dirs := make([]string, 0, len(groupVersions))
	for _, groupVersion := range groupVersions {
		dirs = append(dirs, filepath.Join(module.Dir, filepath.FromSlash(groupVersion), "zz_generated.crd-manifests"))
	}
	return dirs, nil
}

// OpenShiftDefault is a function for CRDOptions.Filter. It selects the CRDs of a self-managed OpenShift cluster with
// the default feature set, by the same annotations as the installer of OpenShift. CRDs without these annotations, such
// as the CRDs of this project, are not selected.
func OpenShiftDefault(crd *apiextensionsv1.CustomResourceDefinition) bool {
	if crd.Annotations["include.release.openshift.io/self-managed-high-availability"] != "true" {
		return false
	}
	if crd.Annotations["release.openshift.io/feature-gate"] != "" {
		return false
	}
	set, limited := crd.Annotations["release.openshift.io/feature-set"]
	return !limited || slices.Contains(strings.Split(set, ","), "Default")
}
