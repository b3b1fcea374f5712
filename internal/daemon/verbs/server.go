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

// replaceServer updates the API server's address and CA in the kubeconfigs of a host that joined before. Their
// credentials stay. It stops the services that use them first, so that no service continues with old settings if this
// call is killed. This call starts kubelet again, and the daemon starts the other services.
func replaceServer(ctx context.Context, host winos.Host, stateFile *state.File,
	request contract.BootstrapRequest) error {
	to, err := apiclient.ServerOf(request.BootstrapKubeconfig)
	if err != nil {
		return nil //nolint:nilerr // the request names no API server
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
				"stopping %s so that it uses the API server's new address: %v", s.Name, err)
		}
	}
	return apiclient.Point(host.Files, astray, to)
}
