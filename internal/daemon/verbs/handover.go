package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Handover stores the daemon's certificate and kubeconfig, installs the program at path self as the daemon's service,
// and starts the service. If the service is already running, Handover stops it first, because the service writes the
// state file and reads the other files.
func Handover(ctx context.Context, host winos.Host, self string,
	request contract.HandoverRequest) (answer contract.HandoverAnswer, err error) {
	config := serviceConfig(request)
	before, err := host.Services.Get(ctx, config.Name)
	switch {
	case err != nil && !errors.Is(err, winos.ErrNotFound):
		return answer, problem("looking at", err)
	case err == nil && !contract.IsManaged(before.Description):
		return answer, contract.NewProblem(contract.ReasonConflictingSoftware, "service %s exists and is not ours",
			config.Name)
	}
	if err = stopDaemon(ctx, host.Services); err != nil {
		return answer, err
	}
	stateFile, err := state.Open(host.Files)
	if err != nil {
		return answer, err
	}
	if err = check(stateFile, request); err != nil {
		return answer, err
	}
	if rpcDir := state.Parent(self); homeOf(rpcDir) != "" {
		stateFile.RPCDir = rpcDir
	}
	err = state.Ensure(host.Files, stateFile, state.Directories()...) // Ensure also saves the state file
	if err == nil {
		err = credentials(host.Files, request)
	}
	if err == nil {
		err = copyProgram(ctx, host.Files, stateFile, self)
	}
	if err != nil {
		return answer, apply.FileProblem(err)
	}
	if err = host.Services.Apply(ctx, config); err != nil {
		return answer, problem("configuring", err)
	}
	// Don't write the state file from here on: the started service writes it.
	if err = host.Services.Start(ctx, contract.ServiceDaemon); err != nil {
		return answer, contract.NewProblem(contract.ReasonServiceFailed, "%v", err)
	}
	return answer, nil
}

// check refuses requests that don't fit the bootstrapped host.
func check(stateFile *state.File, request contract.HandoverRequest) error {
	switch {
	case request.NodeName == "" || stateFile.NodeName == "":
		return contract.NewProblem(contract.ReasonInternal, "handover comes after bootstrap, with the node's name")
	case request.NodeName != stateFile.NodeName:
		return contract.NewProblem(contract.ReasonHostnameInvalid,
			"the host was bootstrapped as %.63q and is handed over as %.63q", stateFile.NodeName, request.NodeName)
	case request.APIServer == "" || len(request.CA) == 0 || request.Namespace == "":
		return contract.NewProblem(contract.ReasonInternal, "the request lacks the API server's address, its CA, "+
			"or the namespace of the manifests")
	}
	return nil
}

// credentials writes the daemon's certificate and kubeconfig. The kubeconfig contains the path of the certificate, so
// it stays valid when the certificate is renewed.
func credentials(files winos.Files, request contract.HandoverRequest) error {
	err := apiclient.Daemon(files, request.NodeName).StoreCertificate(request.Certificate)
	if err != nil {
		return fmt.Errorf("storing the daemon's certificate: %w", err)
	}
	content, err := apiclient.Kubeconfig("wicd", request.Namespace,
		apiclient.Server{URL: request.APIServer, CA: request.CA},
		clientcmdapi.AuthInfo{ClientCertificate: contract.PathDaemonCertificate,
			ClientKey: contract.PathDaemonCertificate})
	if err != nil {
		return err
	}
	err = winos.WriteFile(files, contract.PathDaemonKubeconfig, bytes.NewReader(content), winos.AccessAdministrators)
	if err != nil {
		return fmt.Errorf("writing the daemon's kubeconfig: %w", err)
	}
	return nil
}

func copyProgram(ctx context.Context, files winos.Files, stateFile *state.File, self string) error {
	wanted, err := apply.DigestOf(ctx, files, self)
	if err != nil {
		return fmt.Errorf("reading this program: %w", err)
	}
	have, err := apply.DigestOf(ctx, files, contract.PathDaemon)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || have == wanted {
		return err
	}
	r, err := winos.OpenClosed(files, self)
	if err != nil {
		return fmt.Errorf("opening this program: %w", err)
	}
	return errors.Join(apply.WriteFile(ctx, files, stateFile, contract.PathDaemon, wanted, r), r.Close())
}

func serviceConfig(request contract.HandoverRequest) winos.ServiceConfig {
	delays, reset := plan.DaemonRecovery()
	return winos.ServiceConfig{
		Name: contract.ServiceDaemon, Description: plan.Description(contract.ServiceDaemon),
		Command:  contract.PathDaemon + " controller --namespace=" + request.Namespace,
		Recovery: delays, RecoveryReset: reset,
	}
}

func problem(doing string, err error) *contract.Problem {
	return contract.NewProblem(contract.ReasonServiceFailed, "%s service %s: %v", doing, contract.ServiceDaemon, err)
}
