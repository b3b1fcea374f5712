package cluster

import (
	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// settingsNotHere returns a problem for each field of the WindowsMachineConfig that has no effect because OpenShift has
// an object for this setting. Exception: spec.network.type may contain the type of OpenShift's network.
func settingsNotHere(spec v1alpha1.WindowsMachineConfigSpec) (problems []*contract.Problem) {
	for _, s := range []struct {
		set           bool
		field, object string
	}{
		{spec.APIServer != "", "apiServer", nameInfrastructure},
		{spec.Network.Type != "" && spec.Network.Type != v1alpha1.NetworkOVNKubernetesHybrid, "network.type",
			nameNetwork},
		{spec.Network.ClusterDomain != "", "network.clusterDomain", "the DNS default of operator.openshift.io"},
		{spec.Proxy != v1alpha1.ProxySpec{}, "proxy", nameProxy},
		{len(spec.Mirrors.ImageDigestMirrors) > 0, "mirrors.imageDigestMirrors", "an ImageDigestMirrorSet"},
		{len(spec.Mirrors.ImageTagMirrors) > 0, "mirrors.imageTagMirrors", "an ImageTagMirrorSet"},
		{spec.PullSecret != "", "pullSecret", namePullSecret},
	} {
		if s.set {
			problems = append(problems, contract.NewProblem(contract.ReasonSettingNotHere,
				"spec.%s of the WindowsMachineConfig is not followed: on OpenShift, %s sets that", s.field, s.object))
		}
	}
	return problems
}
