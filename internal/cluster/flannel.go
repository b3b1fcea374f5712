package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	flannelNamespace = "kube-flannel"
	flannelConfigMap = "kube-flannel-cfg"
	flannelKey       = "net-conf.json"
	nameFlannel      = "the ConfigMap " + flannelNamespace + "/" + flannelConfigMap
)

// maxFlannel is the maximum size of flannel's configuration in bytes. The usual one has about 100 bytes.
const maxFlannel = 16 << 10

// minVNI, maxVNI and vxlanPort are for Windows nodes: VNIs have at most 16 bits. linuxVNI and linuxPort are defaults of
// flannel on Linux nodes. https://github.com/flannel-io/flannel/blob/v0.28.10/pkg/backend/vxlan/vxlan_windows.go
const (
	minVNI, maxVNI, linuxVNI = 4096, 65535, 1
	vxlanPort, linuxPort     = 4789, 8472
)

// maxFlannelBits is the prefix length of the smallest network that flannel accepts. Such a network has subnets for four
// nodes. https://github.com/flannel-io/flannel/blob/v0.28.10/pkg/subnet/config.go
const maxFlannelBits = 28

// flannelNet is the part of net-conf.json that must be checked, because Windows nodes don't support all values.
type flannelNet struct {
	Network     string
	IPv6Network string
	EnableIPv4  bool
	EnableIPv6  bool
	Backend     flannelBackend
}

type flannelBackend struct {
	Type               string
	VNI, Port          int
	GBP, DirectRouting bool
}

func (p *Plain) flannel(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec, facts *blueprint.Facts) error {
	if !p.isFlannel(spec.Network.Type, facts) {
		return nil
	}
	facts.NetworkType = blueprint.NetworkFlannel
	flannel, err := last(ctx, &p.common, facts, nameFlannel, func() (blueprint.Flannel, error) {
		var object corev1.ConfigMap
		if err := p.Live.Get(ctx, keyIn(flannelNamespace, flannelConfigMap), &object); err != nil {
			return blueprint.Flannel{}, noFlannel(err)
		}
		flannel, problem := parseFlannel(object.Data[flannelKey])
		if problem != nil {
			return flannel, problem
		}
		return flannel, nil
	})
	if problem, ok := contract.AsProblem(err); ok { // report each problem under the same reason
		return notFlannel("%s", problem.Detail)
	}
	if err != nil {
		return err
	}
	if err = classE(nameFlannel+": Network", []string{flannel.Network.String()}); err != nil {
		return err
	}
	for _, services := range facts.ServiceNetworks {
		if services.Overlaps(flannel.Network) {
			return notFlannel("%s: Network is %s, which overlaps %s of Services: pods and Services need separate "+
				"networks",
				nameFlannel, flannel.Network, services)
		}
	}
	for _, pods := range facts.PodNetworks {
		switch {
		case !pods.Addr().Is4():
			return notFlannel("%s: podSubnet has %s: the cluster is dual-stack, and the overlay network of Windows "+
				"carries IPv4 only", nameKubeadm, pods)
		case pods.Bits() < flannel.Network.Bits() || !flannel.Network.Contains(pods.Addr()):
			return notFlannel("%s: Network is %s, and %s has podSubnet %s: each node gets its part of podSubnet, so "+
				"Network must be the same", nameFlannel, flannel.Network, nameKubeadm, pods)
		}
	}
	if len(facts.PodNetworks) == 0 {
		facts.PodNetworks = []netip.Prefix{flannel.Network}
	}
	facts.Flannel = flannel
	return p.services(ctx, facts)
}

// isFlannel reports whether the pod network is flannel. If a user removes the setting, flannel stays in use. Otherwise
// nodes would lose flanneld and kube-proxy: all nodes would be drained, and none would become Ready again.
func (p *Plain) isFlannel(setting v1alpha1.NetworkType, facts *blueprint.Facts) bool {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	_, known := p.memory.parts[nameFlannel]
	switch {
	case setting == v1alpha1.NetworkExternal:
		delete(p.memory.parts, nameFlannel)
	case setting == "" && known:
		facts.Troubles = append(facts.Troubles, incomplete("%s was removed, but nodes still use flannel, so flannel "+
			"stays: set it to Flannel, or to External if other software provides the pod network",
			settingNetwork))
		return true
	}
	return setting == v1alpha1.NetworkFlannel
}

// noFlannel converts an error of a read to a problem if an administrator can fix the error.
func noFlannel(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return incomplete("%s may not be read: install flannel, then apply config/kubernetes/flannel of the "+
			"operator's manifests", nameFlannel)
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return incomplete("%s does not exist: install flannel, or choose another spec.network.type in the "+
			"WindowsMachineConfig", nameFlannel)
	}
	return fmt.Errorf("reading %s: %w", nameFlannel, err)
}

// parseFlannel parses net-conf.json as flanneld does. Invalid text, and settings that Windows lacks, are problems.
func parseFlannel(text string) (blueprint.Flannel, *contract.Problem) {
	conf := flannelNet{EnableIPv4: true, Backend: flannelBackend{VNI: linuxVNI, Port: linuxPort}}
	if text == "" || len(text) > maxFlannel || json.Unmarshal([]byte(text), &conf) != nil {
		return blueprint.Flannel{}, incomplete("%s: %s is not the JSON of flannel's configuration", nameFlannel,
			flannelKey)
	}
	network, err := netip.ParsePrefix(conf.Network)
	problem := ""
	switch {
	case conf.EnableIPv6 || conf.IPv6Network != "":
		problem = "flannel is dual-stack, and the overlay network of Windows carries IPv4 only: remove EnableIPv6 " +
			"and IPv6Network"
	case !conf.EnableIPv4:
		problem = "EnableIPv4 is false; Windows nodes need IPv4"
	case err != nil || !network.Addr().Is4():
		problem = fmt.Sprintf("Network %.40q is not an IPv4 prefix such as 10.244.0.0/16", conf.Network)
	case network.Bits() > maxFlannelBits:
		problem = fmt.Sprintf("Network is %s, which has no subnet for each node: at least a /%d is needed", network,
			maxFlannelBits)
	default:
		problem = conf.Backend.violation()
	}
	if problem != "" {
		return blueprint.Flannel{}, notFlannel("%s: %s", nameFlannel, problem)
	}
	return blueprint.Flannel{Network: network.Masked(), VNI: uint16(conf.Backend.VNI)}, nil
}

// The method `violation` describes the first setting of the backend that Windows nodes don't support, or returns "".
func (b flannelBackend) violation() string {
	switch {
	case !strings.EqualFold(b.Type, "vxlan"):
		return fmt.Sprintf("Backend.Type is %.40q; set it to vxlan, because the operator supports no other backend "+
			"on Windows nodes",
			b.Type)
	case b.VNI < minVNI || b.VNI > maxVNI:
		return fmt.Sprintf("Backend.VNI is %d; Windows takes %d to %d: set %d", b.VNI, minVNI, maxVNI, minVNI)
	case b.Port != vxlanPort:
		return fmt.Sprintf("Backend.Port is %d; Windows uses %d only: set it", b.Port, vxlanPort)
	case b.DirectRouting:
		return "Backend.DirectRouting is on, which Windows does not have: remove it"
	case b.GBP:
		return "Backend.GBP is on, which Windows does not have: remove it"
	}
	return ""
}

func notFlannel(format string, args ...any) *contract.Problem {
	return contract.NewProblem(contract.ReasonFlannelUnsupported, format, args...)
}
