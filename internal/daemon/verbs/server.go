package verbs

import (
	"context"
	"slices"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// replaceServer has the programs of a host that joined before find the API server where it is now, by the CA that it
// has now. Who they are stays. They are stopped first, so that a call that is killed leaves none that runs on with
// what it read; this call starts kubelet, and the daemon the others.
func replaceServer(ctx context.Context, host winos.Host, stateFile *state.File,
	request contract.BootstrapRequest) error {
	to, err := apiclient.ServerOf(request.BootstrapKubeconfig)
	if err != nil {
		return nil //nolint:nilerr // nothing is said about the API server
	}
	astray, err := apiclient.Astray(host.Files, apiclient.Kubeconfigs(), to)
	if err != nil || len(astray) == 0 {
		return err
	}
	for _, s := range request.Manifest.Services {
		if !slices.Contains(contract.KubeconfigServices(), s.Name) {
			continue
		}
		if err = apply.Stop(ctx, host.Services, stateFile, s.Name); err != nil {
			return contract.NewProblem(contract.ReasonServiceFailed,
				"stopping %s, which is to find the API server where it is now: %v", s.Name, err)
		}
	}
	return apiclient.Point(host.Files, astray, to)
}
