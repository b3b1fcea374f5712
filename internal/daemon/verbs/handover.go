package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const (
	pathCABundle = contract.DirK + `\ca-bundle.crt`
	// lifetime is the requested lifetime of a renewed certificate. The operator requests the same for the first one.
	lifetime = 14 * 24 * time.Hour
)

// Handover stores the daemon's certificate and kubeconfig, installs the program at self as the
// service, and starts it.
func Handover(ctx context.Context, host winos.Host, self string,
	request contract.HandoverRequest) (answer contract.HandoverAnswer, err error) {
	stateFile, err := state.Open(host.Files)
	if err != nil {
		return answer, err
	}
	if err = check(stateFile, request); err != nil {
		return answer, err
	}
	if err = state.Ensure(host.Files, stateFile, state.Directories()...); err != nil {
		return answer, apply.FileProblem(err)
	}
	rpcDir := directory(self)
	if homeOf(rpcDir) == "" {
		rpcDir = stateFile.RPCDir
	}
	changed, err := credentials(host.Files, request)
	if errors.Is(err, winos.ErrInUse) {
		// A running service may be reading the old files. Stop it: it is restarted later with the new files.
		if err = host.Services.Stop(ctx, contract.ServiceDaemon); err != nil && !errors.Is(err, winos.ErrNotFound) {
			return answer, contract.NewProblem(contract.ReasonServiceFailed, "%v", err)
		}
		changed, err = credentials(host.Files, request)
	}
	if err != nil {
		return answer, asProblem(err)
	}
	changed = changed || rpcDir != stateFile.RPCDir
	if err = installed(ctx, host, self, rpcDir, serviceConfig(request), changed); err != nil {
		return answer, err
	}
	// As soon as the service has started, only the service writes the state file.
	if err = host.Services.Start(ctx, contract.ServiceDaemon); err != nil {
		return answer, contract.NewProblem(contract.ReasonServiceFailed, "%v", err)
	}
	after, err := host.Services.Get(ctx, contract.ServiceDaemon)
	if err != nil {
		return answer, problem("looking at", err)
	}
	answer.ServiceRunning = after.State == winos.ServiceRunning
	return answer, nil
}

// installed updates the program and the configuration of the service. It restarts a running service only if the program
// or the configuration differs, the service is stuck, or changed reports new credentials.
func installed(ctx context.Context, host winos.Host, self, rpcDir string, config winos.ServiceConfig,
	changed bool) error {
	exe, err := replacement(ctx, host.Files, self)
	if err != nil {
		return apply.FileProblem(err)
	}
	before, err := host.Services.Get(ctx, config.Name)
	if err != nil && !errors.Is(err, winos.ErrNotFound) {
		return problem("looking at", err)
	}
	if err == nil && !contract.IsManaged(before.Description) {
		return contract.NewProblem(contract.ReasonConflictingSoftware, "service %s exists and is not ours", config.Name)
	}
	if changed || exe != "" || !plan.Equal(before.ServiceConfig, config) || stuck(before.State) {
		return install(ctx, host, self, rpcDir, config, exe)
	}
	if before.NoAutoStart {
		if err = host.Services.Apply(ctx, config); err != nil {
			return problem("configuring", err)
		}
	}
	return nil
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

// credentials writes the certificate and the kubeconfig. changed reports whether a running daemon has older ones.
func credentials(files winos.Files, request contract.HandoverRequest) (changed bool, err error) {
	changed, err = apiclient.Daemon(files, request.NodeName).StoreCertificate(request.Certificate)
	if err != nil {
		return false, fmt.Errorf("storing the daemon's certificate: %w", err)
	}
	content, err := kubeconfig(request)
	if err != nil {
		return false, err
	}
	have, err := winos.ReadFile(files, contract.PathDaemonKubeconfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("reading the daemon's kubeconfig: %w", err)
	}
	if bytes.Equal(have, content) {
		return changed, nil
	}
	err = winos.WriteFile(files, contract.PathDaemonKubeconfig, bytes.NewReader(content), winos.AccessAdministrators)
	if err != nil {
		return false, fmt.Errorf("writing the daemon's kubeconfig: %w", err)
	}
	return true, nil
}

// asProblem maps an error of a write to its reason. A certificate that doesn't fit the daemon is an internal error.
func asProblem(err error) *contract.Problem {
	for _, known := range []error{winos.ErrNoSpace, winos.ErrInUse, winos.ErrDenied} {
		if errors.Is(err, known) {
			return apply.FileProblem(err)
		}
	}
	return contract.NewProblem(contract.ReasonInternal, "%v", err)
}

// kubeconfig returns a kubeconfig that refers to the certificate's file, so that it stays valid when the certificate is
// renewed.
func kubeconfig(request contract.HandoverRequest) ([]byte, error) {
	const name = "wicd"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: request.APIServer, CertificateAuthorityData: request.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: contract.PathDaemonCertificate,
		ClientKey: contract.PathDaemonCertificate}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: request.Namespace}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding the daemon's kubeconfig: %w", err)
	}
	return content, nil
}

// replacement returns the digest of the program at self, or an empty string if the installed program is the same.
func replacement(ctx context.Context, files winos.Files, self string) (digest string, err error) {
	if strings.EqualFold(self, contract.PathDaemon) {
		return "", nil
	}
	wanted, err := apply.DigestOf(ctx, files, self)
	if err != nil {
		return "", err
	}
	have, err := apply.DigestOf(ctx, files, contract.PathDaemon)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || have == wanted {
		return "", err
	}
	return wanted, nil
}

// stuck reports whether a service is stopping or paused.
func stuck(state winos.ServiceState) bool {
	return state == winos.ServiceStopPending || state == winos.ServicePaused
}

// install stops a running service and updates its program and configuration. exe is the result of replacement. It opens
// the state file only after the stop, because the running service writes the file.
func install(ctx context.Context, host winos.Host, self, rpcDir string, config winos.ServiceConfig,
	exe string) error {
	if err := host.Services.Stop(ctx, config.Name); err != nil && !errors.Is(err, winos.ErrNotFound) {
		return contract.NewProblem(contract.ReasonServiceFailed, "%v", err)
	}
	stateFile, err := state.Open(host.Files)
	if err != nil {
		return err
	}
	stateFile.RPCDir = rpcDir
	if err = stateFile.Save(); err != nil {
		return apply.FileProblem(err)
	}
	if exe != "" {
		if err := errors.Join(copyProgram(ctx, host.Files, stateFile, self, exe),
			apply.RemoveAside(host.Files, stateFile)); err != nil {
			return apply.FileProblem(err)
		}
	}
	if err := host.Services.Apply(ctx, config); err != nil {
		return problem("configuring", err)
	}
	return nil
}

func copyProgram(ctx context.Context, files winos.Files, stateFile *state.File, self, digest string) error {
	r, err := winos.OpenClosed(files, self)
	if err != nil {
		return fmt.Errorf("opening the own program: %w", err)
	}
	return errors.Join(apply.WriteFile(ctx, files, stateFile, contract.PathDaemon, digest, r), r.Close())
}

func serviceConfig(request contract.HandoverRequest) winos.ServiceConfig {
	arguments := []string{
		contract.PathDaemon, "controller", "--windows-service",
		"--log-dir=" + contract.DirDaemonLog,
		"--namespace=" + request.Namespace,
		"--kubeconfig=" + contract.PathDaemonKubeconfig,
		"--cert-dir=" + contract.DirDaemonCerts,
		"--cert-duration=" + lifetime.String(),
		"--ca-bundle=" + pathCABundle,
	}
	delays, reset := plan.DaemonRecovery()
	return winos.ServiceConfig{
		Name: contract.ServiceDaemon, Description: plan.Description(contract.ServiceDaemon),
		Command:  strings.Join(arguments, " "),
		Recovery: delays, RecoveryReset: reset,
	}
}

func problem(doing string, err error) *contract.Problem {
	return contract.NewProblem(contract.ReasonServiceFailed, "%s service %s: %v", doing, contract.ServiceDaemon, err)
}
