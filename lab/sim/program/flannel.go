package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// flannelAnnotation is the prefix of the annotations of flannel.
const flannelAnnotation = "flannel.alpha.coreos.com/"

// flanneld simulates flanneld on Windows (v0.28.10, main.go, pkg/subnet/kube and pkg/backend/vxlan). It lists and
// watches all Nodes. It exits if its own Node has no podCIDR, or if the podCIDR is outside the network. It writes its
// lease to annotations of the Node through the subresource status, creates the HNS network, writes the lease again with
// the address of this network, and writes the subnet to a file.
type flanneld struct {
	*sim.Process
	node   string
	server *access
	nodes  cache.Store
	log    logr.Logger
}

// flannelConf contains the fields of net-conf.json that flanneld uses on Windows.
type flannelConf struct {
	Network string
	Backend struct {
		Type, Name    string
		VNI, Port     int
		GBP           bool
		DirectRouting bool
	}
}

func flannel(ctx context.Context, p *sim.Process) int {
	flags := newFlags("flanneld")
	kubeconfig := flags.String("kubeconfig-file", "", "")
	netConf := flags.String("net-config-path", "/etc/kube-flannel/net-conf.json", "")
	subnetFile := flags.String("subnet-file", "/run/flannel/subnet.env", "")
	iface := flags.String("iface", "", "")
	kube := flags.Bool("kube-subnet-mgr", false, "")
	condition := flags.Bool("set-node-network-unavailable", true, "")
	tolerate(flags, "", "v")
	if err := parse(flags, doubleDashes(p.Args[1:])); err != nil {
		return refuse(p, err)
	}
	f := &flanneld{Process: p, node: p.Env["NODE_NAME"]}
	switch {
	case !*kube:
		return refuse(p, errors.New("no etcd at http://127.0.0.1:2379"))
	case f.node == "":
		return refuse(p, errors.New("env variables POD_NAME and POD_NAMESPACE must be set"))
	case *condition:
		return refuse(p, errors.New("the stand-in writes no condition of the Node"))
	}
	conf, err := f.configuration(*netConf)
	if err != nil {
		return refuse(p, err)
	}
	address, err := f.interfaceOf(ctx, *iface)
	if err != nil {
		return refuse(p, err)
	}
	config, err := loadKubeconfig(p.Host.Files, *kubeconfig)
	if err != nil {
		return refuse(p, fmt.Errorf("fail to create kubernetes config: %w", err))
	}
	if f.server, err = connect(config, "flanneld", p.Host.System.Now, nil); err != nil {
		return refuse(p, err)
	}
	defer f.server.close()
	ctx, f.log = withLog(ctx, p.Stderr, p.Host.System.Now)
	f.log.Info("stand-in started", "program", "flanneld", "node", f.node)
	stop := f.follow(ctx)
	defer stop()
	if err = f.join(ctx, conf, address, *subnetFile); err != nil {
		return refuse(p, err)
	}
	f.log.Info("flannel is ready")
	<-ctx.Done()
	return 0
}

// configuration reads net-conf.json. It refuses the settings that the backend for Windows refuses.
func (f *flanneld) configuration(path string) (conf flannelConf, err error) {
	content, err := winos.ReadFile(f.Host.Files, path)
	if err != nil {
		return conf, fmt.Errorf("failed to read net conf: %w", err)
	}
	conf.Backend.VNI, conf.Backend.Port = 4096, 4789
	if err = json.Unmarshal(content, &conf); err != nil {
		return conf, fmt.Errorf("error parsing subnet config: %w", err)
	}
	b := conf.Backend
	if b.Type != "vxlan" || b.VNI < 4096 || b.Port != 4789 || b.DirectRouting || b.GBP {
		return conf, fmt.Errorf("invalid VXLAN backend config: %+v", b)
	}
	if b.Name == "" {
		conf.Backend.Name = fmt.Sprintf("flannel.%d", b.VNI)
	}
	return conf, nil
}

// interfaceOf returns the address that other hosts use to reach this host.
func (f *flanneld) interfaceOf(ctx context.Context, name string) (netip.Addr, error) {
	if name == "" {
		return f.Host.Network.NodeIP(ctx)
	}
	address, err := netip.ParseAddr(name)
	if err != nil {
		return address, fmt.Errorf("failed to find interface to use that matches %s", name)
	}
	all, err := f.Host.Routes.Addresses(ctx)
	if err == nil && !slices.Contains(all, address) {
		err = errors.New("failed to find interface to use that matches the interfaces and/or regexes provided")
	}
	return address, err
}

// follow lists and watches all Nodes. The real flanneld does this to read the leases of other nodes.
func (f *flanneld) follow(ctx context.Context) (stop func()) {
	lease := func(what string) func(any) {
		return func(object any) {
			node, ok := object.(*corev1.Node)
			if ok && node.Name != f.node && node.Annotations[flannelAnnotation+"kube-subnet-manager"] == "true" {
				f.log.Info("lease "+what, "node", node.Name, "subnet", node.Spec.PodCIDR,
					"publicIP", node.Annotations[flannelAnnotation+"public-ip"])
			}
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(f.server.client.CoreV1().RESTClient(), "nodes",
			metav1.NamespaceAll, fields.Everything()),
		ObjectType: &corev1.Node{},
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: lease("added"), DeleteFunc: lease("removed")},
	})
	f.nodes = store
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	return func() {
		cancel()
		<-done
	}
}

func (f *flanneld) join(ctx context.Context, conf flannelConf, address netip.Addr, subnetFile string) error {
	subnet, err := f.acquire(ctx, conf, address, "")
	if err != nil {
		return fmt.Errorf("failed to acquire lease: %w", err)
	}
	if err = f.ensureNetwork(ctx, conf, subnet, address); err != nil {
		return fmt.Errorf("failed to create VXLAN network: %w", err)
	}
	if _, err = f.acquire(ctx, conf, address, gatewayMAC(f.node)); err != nil {
		return fmt.Errorf("failed to acquire lease: %w", err)
	}
	content := fmt.Sprintf("FLANNEL_NETWORK=%s\nFLANNEL_SUBNET=%s/%d\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n",
		conf.Network, subnet.Masked().Addr().Next(), subnet.Bits())
	dir := subnetFile[:max(strings.LastIndexByte(subnetFile, '\\'), 0)]
	err = errors.Join(f.Host.Files.MkdirAll(dir, winos.AccessInherit),
		winos.WriteFile(f.Host.Files, subnetFile, strings.NewReader(content), winos.AccessInherit))
	if err != nil {
		f.log.Info("failed to write subnet file", "err", err.Error()) // the real flanneld also continues
	}
	return nil
}

// acquire writes the lease of this host and returns the subnet in it.
func (f *flanneld) acquire(ctx context.Context, conf flannelConf, address netip.Addr,
	mac string) (subnet netip.Prefix, err error) {
	object, exists, err := f.nodes.GetByKey(f.node)
	node, ok := object.(*corev1.Node)
	if err != nil || !exists || !ok {
		return subnet, fmt.Errorf("timeout contacting kube-api, failed to patch node %q", f.node)
	}
	if node.Spec.PodCIDR == "" {
		return subnet, fmt.Errorf("node %q pod cidr not assigned", f.node)
	}
	network, err := netip.ParsePrefix(conf.Network)
	if err != nil {
		return subnet, fmt.Errorf("error parsing subnet config: %w", err)
	}
	if subnet, err = netip.ParsePrefix(node.Spec.PodCIDR); err != nil || !network.Contains(subnet.Addr()) ||
		subnet.Bits() < network.Bits() {
		return subnet, fmt.Errorf("subnet %q specified in the flannel net config doesn't contain %q PodCIDR of the %q "+
			"node", conf.Network, node.Spec.PodCIDR, f.node)
	}
	data, err := json.Marshal(struct {
		VNI     int
		VtepMAC string
	}{conf.Backend.VNI, mac})
	if err != nil {
		return subnet, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		flannelAnnotation + "backend-type":        "vxlan",
		flannelAnnotation + "backend-data":        string(data),
		flannelAnnotation + "public-ip":           address.String(),
		flannelAnnotation + "kube-subnet-manager": "true",
	}}})
	if err != nil {
		return subnet, err
	}
	_, err = f.server.client.CoreV1().Nodes().Patch(ctx, f.node, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return subnet, err
}

// ensureNetwork creates the HNS network. If a network with the right name and subnet exists, ensureNetwork doesn't
// change it, even if its VNI differs. The real flanneld does the same.
func (f *flanneld) ensureNetwork(ctx context.Context, conf flannelConf, subnet netip.Prefix, address netip.Addr) error {
	name := conf.Backend.Name
	found, err := f.Host.Network.HNSNetwork(ctx, name)
	if err == nil && found.Subnet == subnet {
		f.log.Info("found existing HostComputeNetwork", "network", name)
		return nil
	}
	if err != nil && !errors.Is(err, winos.ErrNotFound) {
		return err
	}
	made, err := f.MakeNetwork(winos.HNSNetwork{Name: name, Subnet: subnet, ManagementIP: address,
		VNI: uint32(conf.Backend.VNI)})
	if err == nil {
		f.log.Info("created HostComputeNetwork", "network", made.Name, "subnet", made.Subnet.String())
	}
	return err
}
