package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Preflight inspects the host. self is the path of the running exe. If the host can't become a node, the answer lists
// the problems. If Preflight can't inspect the host, it returns an error.
func Preflight(ctx context.Context, host winos.Host, self string,
	request contract.PreflightRequest) (contract.PreflightAnswer, error) {
	found, err := look(ctx, host, self, request)
	if err != nil {
		return contract.PreflightAnswer{}, err
	}
	return contract.PreflightAnswer{
		Facts: contract.HostFacts{
			Hostname: strings.ToLower(found.facts.Hostname), MachineID: found.facts.MachineID,
			BootID:      found.facts.BootID,
			ProductName: found.facts.ProductName, Build: found.facts.Build, UBR: found.facts.UBR, Time: found.now,
			DiskFree: found.facts.DiskFree, Memory: found.facts.Memory, NodeIP: found.nodeIP, NodeName: found.nodeName,
		},
		Problems:     judge(found, request),
		Missing:      found.toSend(),
		NeedsPrepare: Preparations(found.facts, found.feature, request.Hostname, request.NodeName),
		Joined:       found.joined(),
		Running:      found.joined() && found.services[contract.ServiceDaemon].State == winos.ServiceRunning,
	}, nil
}

func look(ctx context.Context, host winos.Host, self string, request contract.PreflightRequest) (found findings,
	err error) {
	found.now = host.System.Now()
	if found.facts, err = host.System.Facts(ctx); err != nil {
		return found, fmt.Errorf("reading the host's facts: %w", err)
	}
	if !found.facts.Admin {
		return found, nil // without administrator rights, the checks below fail
	}
	if request.Daemon != "" {
		if found.daemon, err = apply.DigestOf(ctx, host.Files, self); err != nil {
			return found, fmt.Errorf("reading this program: %w", err)
		}
	}
	if found.feature, found.featureErr = ContainersFeature(ctx, host.System); found.featureErr != nil {
		found.feature = ""
	}
	if ip, err := host.Network.NodeIP(ctx); err != nil {
		found.routeErr = err
	} else {
		found.nodeIP = ip.String()
	}
	if err = plan.CheckNodeIP(ctx, host, request.NodeIP); err == nil && request.NodeIP != "" {
		found.nodeIP = request.NodeIP
	} else if problem, ok := contract.AsProblem(err); ok {
		found.problems = append(found.problems, *problem)
	} else if err != nil {
		return found, err
	}
	if request.NodeName == contract.FactFullHostname {
		if found.hidden, err = hidesAddress(host.Files); err != nil {
			return found, fmt.Errorf("reading the configuration of VMware Tools: %w", err)
		}
	}
	var problem *contract.Problem
	if found.nodeName, problem = nodeName(ctx, host, found.facts, request); problem != nil {
		found.problems = append(found.problems, *problem)
	}
	if found.listening, err = host.Network.Listening(ctx); err != nil {
		return found, fmt.Errorf("listing the ports in use: %w", err)
	}
	if found.services, err = services(ctx, host); err != nil {
		return found, err
	}
	if found.ours, err = state.Recognisable(host.Files); err != nil {
		return found, err
	}
	if problem, err = state.Conflict(host.Files, shared(request.ExternalNetwork)...); err != nil {
		return found, err
	} else if problem != nil {
		found.problems = append(found.problems, *problem)
	}
	if request.APIServer != "" {
		found.unreachable = apiclient.Reach(ctx, apiclient.Server{URL: request.APIServer, CA: request.CA},
			host.System.Now)
	}
	found.missing, err = payload.NewStore(host.Files).Missing(request.Blobs)
	return found, err
}

// `shared` returns the directories from which containerd runs programs, and to which other programs also write.
func shared(externalNetwork bool) []string {
	if !externalNetwork {
		return nil
	}
	return []string{contract.DirExternalCNI, contract.DirExternalCNIConfig}
}

// nodeName returns the Node's future name. If prepare will rename the host, this name contains the new host name.
func nodeName(ctx context.Context, host winos.Host, facts winos.Facts, request contract.PreflightRequest) (string,
	*contract.Problem) {
	if isOwn(request.NodeName) {
		return strings.ToLower(ownName(facts, request)), nil
	}
	name, problem := plan.HostFacts(ctx, host, "", nil)(request.NodeName)
	if problem == nil || request.NodeName != contract.FactAWSHostname {
		return name, problem
	}
	// A change of HNS networks removes the host's route to the metadata service. Add the route and try again. If this
	// doesn't help, remove the route again.
	to := plan.MetadataAddress()
	added, err := host.Routes.Ensure(ctx, to)
	if err != nil || !added {
		return name, problem
	}
	if name, problem = plan.HostFacts(ctx, host, "", nil)(request.NodeName); problem != nil {
		if err = host.Routes.Remove(ctx, to); err != nil {
			logr.FromContextOrDiscard(ctx).Info("a route to the metadata service can't be removed", "detail",
				err.Error())
		}
	}
	return name, problem
}

// isOwn reports whether the Node's name comes from the host itself, not from the cloud.
func isOwn(f contract.Fact) bool {
	return f == "" || f == contract.FactHostname || f == contract.FactFullHostname
}

// ownName returns the host's name after prepare, with upper and lower case as in Windows.
func ownName(facts winos.Facts, request contract.PreflightRequest) string {
	name := cmp.Or(request.Hostname, facts.Hostname)
	if request.NodeName == contract.FactFullHostname {
		name += strings.TrimPrefix(facts.FullName, facts.Hostname)
	}
	return name
}

func services(ctx context.Context, host winos.Host) (map[string]winos.Service, error) {
	all := map[string]winos.Service{}
	for _, name := range serviceNames() {
		s, err := host.Services.Get(ctx, name)
		if errors.Is(err, winos.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking at service %s: %w", name, err)
		}
		all[name] = s
	}
	return all, nil
}
