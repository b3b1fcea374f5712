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

// replaceServer updates the API server's address and CA in the kubeconfigs of a host that joined before. The
// kubeconfigs keep their credentials. Before it changes a kubeconfig, replaceServer stops the services that use it. So
// if this call is killed, no service continues with old settings. Later, this bootstrap starts kubelet again, and the
// daemon starts the other services.
func replaceServer(ctx context.Context, host winos.Host, stateFile *state.File,
	request contract.BootstrapRequest) error {
	to, err := apiclient.ServerOf(request.BootstrapKubeconfig)
	if err != nil {
		return nil //nolint:nilerr // the request names no API server
	}
	var astray []string
	for _, path := range apiclient.Kubeconfigs() {
		server, err := apiclient.Repointed(host.Files, path, to)
		if err != nil {
			return err
		}
		if server != nil {
			astray = append(astray, path)
		}
	}
	if len(astray) == 0 {
		return nil
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
	for _, path := range astray {
		if err = apiclient.Point(host.Files, path, to); err != nil {
			return err
		}
	}
	return nil
}
