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

// openShiftModule carries OpenShift's real definitions; the wmco module pins it.
const openShiftModule = "github.com/openshift/api"

// OpenShiftCRDDirs returns the folders of the pinned OpenShift API module that
// hold the definitions of the given group versions, each named by its folder in
// that module: "config/v1", "machine/v1beta1", "operator/v1",
// "machineconfiguration/v1". The module is downloaded if the machine lacks it.
// (Its folder payload-manifests/crds holds only some of them: no Machines, no
// operator networks, as of July 2026.)
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

// OpenShiftDefault is a Filter, or a part of one: it takes a definition if an
// OpenShift cluster that manages itself and has the default feature set has it.
// The annotations it goes by are those that OpenShift's installer goes by. A
// definition without them, one of our own for instance, is not taken.
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
