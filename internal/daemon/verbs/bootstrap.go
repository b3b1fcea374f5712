package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/reconcile"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Bootstrap sets up everything that doesn't need a Node: directories, files, credentials, environment variables,
// containerd and kubelet. The answer contains the certificate request of the daemon. self is the path of the running
// exe. If the manifest contains this exe, Bootstrap copies it to the store.
func Bootstrap(ctx context.Context, host winos.Host, self string,
	request contract.BootstrapRequest) (answer contract.BootstrapAnswer, err error) {
	if err = request.Manifest.Validate(); err != nil {
		return answer, err
	}
	if _, err = contract.ParseConfidential(request.Confidential, request.Manifest); err != nil {
		return answer, err
	}
	var facts map[contract.Fact]string
	if answer.NodeName, facts, err = nameOf(ctx, host, request); err != nil {
		return answer, err
	}
	if request.NodeName != answer.NodeName {
		return answer, contract.NewProblem(contract.ReasonHostnameInvalid,
			"the host is named %.63q and should join as %.63q", answer.NodeName, request.NodeName)
	}
	// Stop the daemon of an earlier join first. Otherwise that daemon would restore its own manifest. If the host was
	// released, its daemon may have started the cleanup service, so remove that service as well.
	if err = errors.Join(stopDaemon(ctx, host.Services), withdrawCleanup(ctx, host.Services)); err != nil {
		return answer, err
	}
	stateFile, err := state.Open(host.Files)
	if err != nil {
		return answer, err
	}
	if answer.ClearedKeys, err = makeDirectories(host.Files, stateFile, shared(request.ExternalNetwork)); err != nil {
		return answer, err
	}
	if err = payload.NewStore(host.Files).Adopt(ctx, self, request.Manifest.Blobs()); err != nil {
		return answer, apply.FileProblem(err)
	}
	if err = note(stateFile, request, facts); err != nil {
		return answer, apply.FileProblem(err)
	}
	again, err := takesCredential(ctx, host, stateFile, request)
	if err != nil {
		return answer, apply.FileProblem(err)
	}
	excludeRuntime(ctx, host.System, request.Manifest)
	applier := apply.New(apply.Options{Host: host, State: stateFile})
	report := applier.Apply(ctx, apply.Request{Revision: stateFile.Revision, Scope: plan.Bootstrap})
	if problem := report.Problem(); problem != nil {
		return answer, problem
	}
	if again {
		if err = register(ctx, applier, report); err != nil {
			return answer, err
		}
	}
	answer.DaemonCSR, err = certificateRequest(host.Files, answer.NodeName)
	return answer, err
}

// takesCredential gives kubelet the bootstrap credential of the request. It reports whether kubelet must be restarted,
// either to use a bootstrap credential or to register its Node.
//
// If kubelet has no certificate for this node but already has this credential, kubelet keeps running: a bootstrap
// credential is valid for one key only, and kubelet may have the key of its certificate request only in memory. If
// kubelet has a different credential, takesCredential stops kubelet before it changes the credential. So if this call
// is killed, the next call finds a stopped kubelet and starts it.
func takesCredential(ctx context.Context, host winos.Host, stateFile *state.File,
	request contract.BootstrapRequest) (again bool, err error) {
	node, now := stateFile.NodeName, host.System.Now()
	if len(request.BootstrapKubeconfig) == 0 {
		expired, err := reconcile.KubeletExpired(host.Files, now)
		return expired || request.Register, err
	}
	if err = replaceServer(ctx, host, stateFile, request); err != nil {
		return false, err
	}
	has, err := reconcile.KubeletHasIdentity(host.Files, node, now)
	if err == nil && has {
		var forgot bool
		forgot, err = reconcile.ForgetRefusedKubelet(ctx, host.Files, node, now)
		again = forgot || request.Register
	} else if err == nil {
		again, err = replacesCredential(ctx, host, stateFile, request.BootstrapKubeconfig)
	}
	if err != nil {
		return false, err
	}
	return again, reconcile.WriteBootstrapCredential(host.Files, node, now, request.BootstrapKubeconfig)
}

// replacesCredential stops kubelet and deletes its keys and certificates, unless kubelet already has this bootstrap
// credential. Call it only if kubelet has no certificate for its node, and write the new credential afterwards.
// replacesCredential reports whether it has stopped kubelet.
func replacesCredential(ctx context.Context, host winos.Host, stateFile *state.File, kubeconfig []byte) (again bool,
	err error) {
	has, err := reconcile.HasCredential(host.Files, kubeconfig)
	if err != nil || has {
		return false, err
	}
	if err = apply.Stop(ctx, host.Services, stateFile, contract.ServiceKubelet); err != nil {
		return false, contract.NewProblem(contract.ReasonServiceFailed,
			"stopping kubelet so that it uses its new credential: %v", err)
	}
	return true, reconcile.ForgetKubeletCertificate(host.Files)
}

// makeDirectories deletes the kubelet keys that another operator left, and creates missing directories. Then it checks
// that no directory, including the shared ones, belongs to an ordinary user. The check comes last, so that a user can't
// replace a directory between the check and the directory's creation. makeDirectories reports whether it has deleted
// keys.
func makeDirectories(files winos.Files, stateFile *state.File, shared []string) (cleared bool, err error) {
	if cleared, err = state.ClearKeys(files, stateFile); err == nil {
		err = errors.Join(stateFile.Tidy(), state.Ensure(files, stateFile, state.Directories()...))
	}
	if err != nil {
		return cleared, apply.FileProblem(err)
	}
	problem, err := state.UntrustedOwner(files, shared...)
	if problem != nil {
		return cleared, problem
	}
	return cleared, err
}

// nameOf returns the name for this host's Node: the fact from plan.Naming that the manifest uses, or else the host
// name. The result `values` contains that fact. nameOf also checks that the host has the requested node address.
func nameOf(ctx context.Context, host winos.Host, request contract.BootstrapRequest) (name string,
	values map[contract.Fact]string, err error) {
	facts, err := host.System.Facts(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("reading the host's facts: %w", err)
	}
	name, values = strings.ToLower(facts.Hostname), map[contract.Fact]string{}
	look := plan.HostFacts(ctx, host, request.Manifest.HNSNetwork(), nil)
	for _, f := range plan.Naming() {
		if !plan.AsksFor(request.Manifest, f) {
			continue
		}
		value, problem := look(f)
		if problem != nil {
			return "", nil, problem
		}
		name, values[f] = value, value
	}
	return name, values, plan.CheckNodeIP(ctx, host, request.NodeIP)
}

func stopDaemon(ctx context.Context, services winos.Services) error {
	err := services.Stop(ctx, contract.ServiceDaemon)
	if err != nil && !errors.Is(err, winos.ErrNotFound) {
		return contract.NewProblem(contract.ReasonServiceFailed, "%v", err)
	}
	return nil
}

// note records the new revision and node name in the state file. If the previous revision was verified, it becomes
// stateFile.Before.
func note(stateFile *state.File, request contract.BootstrapRequest, facts map[contract.Fact]string) error {
	if stateFile.NodeName != request.NodeName {
		stateFile.NodeValues = nil
	}
	if stateFile.Revision.Name != request.Revision {
		if stateFile.Verified {
			stateFile.Before = new(stateFile.Revision)
		}
		stateFile.Verified = false
	}
	stateFile.Failed, stateFile.Faults, stateFile.Update = nil, nil, nil
	stateFile.NodeName = request.NodeName
	stateFile.Revision = state.Revision{Name: request.Revision, Manifest: request.Manifest,
		Confidential: request.Confidential}
	stateFile.NodeIP, stateFile.HostValues = request.NodeIP, facts
	return stateFile.Save()
}

// excludeRuntime excludes containerd from the scans of Windows Defender. Otherwise Defender scans every file that
// containerd unpacks, and the host is slower. Errors are only logged. Exception: ErrUnsupported is ignored.
func excludeRuntime(ctx context.Context, system winos.System, manifest contract.Manifest) {
	for _, s := range manifest.Services {
		if s.Name != contract.ServiceContainerd {
			continue
		}
		if err := system.ExcludeFromDefender(ctx, contract.Executable(s.Command)); err != nil &&
			!errors.Is(err, winos.ErrUnsupported) {
			logr.FromContextOrDiscard(ctx).Info("Windows Defender continues to scan containerd", "detail", err.Error())
		}
	}
}

// register restarts kubelet, because only a starting kubelet registers its Node and looks for a new credential. If this
// bootstrap has just started kubelet, as the report shows, register does nothing.
func register(ctx context.Context, applier *apply.Applier, report apply.Report) error {
	started := slices.ContainsFunc(report.Steps, func(s plan.Step) bool {
		return s.Kind == plan.StartService && s.Name == contract.ServiceKubelet
	})
	if started {
		return nil
	}
	err := applier.Restart(ctx, contract.ServiceKubelet)
	if err != nil && !errors.Is(err, winos.ErrNotFound) { // the manifest may have no kubelet
		return contract.NewProblem(contract.ReasonServiceFailed, "restarting kubelet so that it registers: %v", err)
	}
	return nil
}

func certificateRequest(files winos.Files, node string) ([]byte, error) {
	identity := apiclient.Daemon(files, node)
	key, err := identity.PendingKey()
	if err != nil {
		return nil, err
	}
	return identity.NewRequest(key)
}
