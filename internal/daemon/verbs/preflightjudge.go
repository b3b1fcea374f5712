package verbs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const gib = 1 << 30

// Required free disk space. The size of each missing blob is added twice, because a blob is stored and then copied to
// its path. The first images need 10 GiB: a Windows Server Core layer has about 2 GiB compressed and 5 GiB unpacked,
// and both exist during the pull. The remaining space is for logs and a second, smaller image. A joined host already
// has its images, so it needs only 1 GiB for a new payload.
const (
	headroom       = 10 * gib
	headroomJoined = 1 * gib
)

// maxSkew is the maximum difference between the clocks of the host and the cluster. Kubernetes backdates certificates
// by five minutes, so a host accepts a new certificate if its clock is less than five minutes behind. The limit of two
// minutes allows for drift.
const maxSkew = 2 * time.Minute

const (
	build2019 = 17763
	build2022 = 20348
)

type findings struct {
	facts    winos.Facts
	now      time.Time
	daemon   string
	nodeIP   string
	routeErr error
	// `problems` lists problems with the requested address, the name of the Node, and the directories.
	problems   []contract.Problem
	nodeName   string
	feature    winos.FeatureState
	featureErr error
	listening  map[int]string
	services   map[string]winos.Service
	// `ours` is true if the host has files that only this operator's daemon writes. The description of a service
	// doesn't prove this, because another operator uses the same description.
	ours    bool
	missing []contract.Blob
	// `unreachable` is the error of the connection to the API server. It is nil if no connection was requested.
	unreachable error
	// `hidden` is true if VMware Tools will stop reporting the host's address.
	hidden bool
}

// toSend returns the missing blobs, except the running program: bootstrap copies that program to the store.
func (f findings) toSend() (blobs []contract.Blob) {
	for _, b := range f.missing {
		if b.Digest != f.daemon {
			blobs = append(blobs, b)
		}
	}
	return blobs
}

func (f findings) joined() bool { return f.manages(contract.ServiceDaemon) }

// manages reports whether a service exists and was installed by this operator's daemon.
func (f findings) manages(service string) bool {
	return f.ours && contract.IsManaged(f.services[service].Description)
}

// serviceNames returns the services that a manifest may install, and the service of another container runtime.
func serviceNames() []string {
	return []string{
		contract.ServiceContainerd, contract.ServiceKubelet, contract.ServiceExporter, contract.ServiceHybridOverlay,
		contract.ServiceFlannel, contract.ServiceCSIProxy,
		contract.ServiceKubeProxy, contract.ServiceCloudNode, contract.ServiceDaemon, "docker",
	}
}

// judge lists the problems that prevent the host from becoming a node. The most fundamental problem comes first.
func judge(f findings, request contract.PreflightRequest) (problems []contract.Problem) {
	if !f.facts.Admin {
		return []contract.Problem{*contract.NewProblem(contract.ReasonNotAdministrator,
			"the user may log in but has no administrators' rights")}
	}
	for _, check := range []func(findings, contract.PreflightRequest) []contract.Problem{
		daemonDiffers, buildUnsupported, featureUnknown, diskFull, clockSkewed, hostnameInvalid, routeMissing,
		gatewaysSeveral, addressStatic, portUnsupported, inspected, conflicting, portsInUse, addressHidden,
		apiServerUnreachable,
	} {
		problems = append(problems, check(f, request)...)
	}
	return problems
}

func daemonDiffers(f findings, request contract.PreflightRequest) []contract.Problem {
	return when(f.daemon != request.Daemon, contract.ReasonPayloadCorrupt,
		"the daemon's program on the host has digest %.16s and was sent with %.16s", f.daemon, request.Daemon)
}

func buildUnsupported(f findings, _ contract.PreflightRequest) []contract.Problem {
	builds := contract.WindowsBuilds()
	at := slices.IndexFunc(builds, func(b contract.WindowsBuild) bool { return b.Number == f.facts.Build })
	if at >= 0 && f.facts.UBR < builds[at].Update {
		return one(contract.ReasonBuildUnsupported, "%s (%d.%d) lacks the update KB5012637 (%d.%d), which the overlay "+
			"network needs", f.facts.ProductName, f.facts.Build, f.facts.UBR, f.facts.Build, builds[at].Update)
	}
	if f.facts.Server && at >= 0 {
		return nil
	}
	if !f.facts.Server {
		return one(contract.ReasonBuildUnsupported, "%s (build %d) is not a server edition", f.facts.ProductName,
			f.facts.Build)
	}
	return one(contract.ReasonBuildUnsupported, "%s has build %d", f.facts.ProductName, f.facts.Build)
}

// portUnsupported returns a problem if the request has a VXLAN port, and the host runs Windows Server 2019. The HNS of
// this release lacks the feature VxlanPort.
func portUnsupported(f findings, request contract.PreflightRequest) []contract.Problem {
	return when(f.facts.Build == build2019 && request.VXLANPort != 0, contract.ReasonVXLANPortUnsupported,
		"%s can't use the VXLAN port %d of the hybrid network", f.facts.ProductName, request.VXLANPort)
}

// addressStatic returns a problem if the host would lose its static address. On all releases except Server 2022, the
// creation of the first HNS network removes the card's address. On a joined host, that network already exists.
func addressStatic(f findings, _ contract.PreflightRequest) []contract.Problem {
	lost := f.facts.StaticAddress && !f.facts.DeviceLessNICDisabled && f.facts.Build != build2022 && !f.joined()
	return when(lost, contract.ReasonStaticAddress, "address %s is static, and DeviceLessNicDisabled is not set",
		f.nodeIP)
}

// gatewaysSeveral returns a problem if several network cards have a default gateway. The route metrics, which can
// change, would then decide which network card the cluster uses.
func gatewaysSeveral(f findings, request contract.PreflightRequest) []contract.Problem {
	gateways := f.facts.Gateways
	return when(len(gateways) > 1 && request.NodeIP == "" && !f.joined(), contract.ReasonSeveralGateways,
		"%d network cards have a default gateway: %s", len(gateways), strings.Join(gateways, ", "))
}

func featureUnknown(f findings, _ contract.PreflightRequest) []contract.Problem {
	return when(f.featureErr != nil, contract.ReasonFeatureMissing, "asking for the Windows feature %s: %v", Feature,
		f.featureErr)
}

func diskFull(f findings, _ contract.PreflightRequest) []contract.Problem {
	need := int64(headroom)
	if f.joined() {
		need = headroomJoined
	}
	for _, b := range f.missing {
		need += 2 * b.Size
	}
	return when(f.facts.DiskFree < need, contract.ReasonDiskFull,
		"%.1f GiB are free on the system drive and %.1f GiB are needed", float64(f.facts.DiskFree)/gib,
		float64(need)/gib)
}

func clockSkewed(f findings, request contract.PreflightRequest) []contract.Problem {
	skew, direction := f.now.Sub(request.Time), "ahead of"
	if skew < 0 {
		direction = "behind"
	}
	return when(!request.Time.IsZero() && skew.Abs() > maxSkew, contract.ReasonClockSkewed,
		"the host's clock is %s %s the cluster's", skew.Abs().Round(time.Second), direction)
}

func hostnameInvalid(f findings, request contract.PreflightRequest) []contract.Problem {
	if !isOwn(request.NodeName) {
		return nil // the name comes from the cloud, and the code that reads it also checks it
	}
	name := ownName(f.facts, request)
	lower := strings.ToLower(name)
	if wrong := validation.IsDNS1123Subdomain(lower); len(wrong) > 0 {
		return one(contract.ReasonHostnameInvalid, "%.80q can't be a node name: %s", lower, strings.Join(wrong, "; "))
	}
	// Accept capital letters on a joined host: its Node may have been initialised without the cloud provider.
	lost := request.NodeName == contract.FactFullHostname && name != lower && !f.joined()
	return when(lost, contract.ReasonHostnameInvalid,
		"%.80q has capital letters, and vSphere's cloud provider would not find the Node %.80q by it", name, lower)
}

func routeMissing(f findings, _ contract.PreflightRequest) []contract.Problem {
	return when(f.routeErr != nil, contract.ReasonNoDefaultRoute, "finding the address of the default route: %v",
		f.routeErr)
}

func inspected(f findings, _ contract.PreflightRequest) []contract.Problem { return f.problems }

func conflicting(f findings, _ contract.PreflightRequest) (problems []contract.Problem) {
	for _, name := range serviceNames() {
		if _, exists := f.services[name]; exists && !f.manages(name) {
			problems = append(problems, one(contract.ReasonConflictingSoftware,
				"service %s exists and was not installed by this operator", name)...)
		}
	}
	return problems
}

// addressHidden returns a problem if VMware Tools will stop reporting the host's address. On a joined host, the HNS
// interface already has the address.
func addressHidden(f findings, _ contract.PreflightRequest) []contract.Problem {
	return when(f.hidden && !f.joined(), contract.ReasonAddressHidden,
		"exclude-nics in %s leaves out the interface that will have the host's address", guestToolsConf)
}

func portsInUse(f findings, _ contract.PreflightRequest) (problems []contract.Problem) {
	users := map[int]string{contract.KubeletPort: contract.ServiceKubelet,
		contract.MetricsPort: contract.ServiceExporter}
	for _, port := range []int{contract.KubeletPort, contract.MetricsPort} {
		program, used := f.listening[port]
		// Skip the port if the service that should use it is running. If that service isn't ours, the check
		// "conflicting" reports it.
		if !used || f.services[users[port]].State == winos.ServiceRunning {
			continue
		}
		if program == "" {
			program = "another program"
		}
		problems = append(problems, one(contract.ReasonPortInUse, "%s listens on TCP port %d", program, port)...)
	}
	return problems
}

func apiServerUnreachable(f findings, request contract.PreflightRequest) []contract.Problem {
	return when(f.unreachable != nil, contract.ReasonAPIServerUnreachable, "connecting to %s: %.300s",
		request.APIServer, f.unreachable)
}

func when(bad bool, reason contract.Reason, format string, args ...any) []contract.Problem {
	if !bad {
		return nil
	}
	return one(reason, format, args...)
}

func one(reason contract.Reason, format string, args ...any) []contract.Problem {
	return []contract.Problem{{Reason: reason, Detail: fmt.Sprintf(format, args...)}}
}
