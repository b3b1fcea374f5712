package program

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// overlay simulates the hybrid overlay. It waits for the subnet that the cluster assigns to its Node. Then it creates
// the HNS network on its machine, and writes the gateway of the network to the Node. Like the real hybrid overlay, it
// authenticates with kubelet's certificate to request another certificate. Unlike the real one, it never uses the
// second certificate, so it works even if nothing approves the request.
type overlay struct {
	*sim.Process
	node string
	// certDir is the directory of the hybrid overlay's certificates. duration is their lifetime.
	certDir  string
	duration time.Duration
	server   *access
	log      logr.Logger
}

func hybridOverlay(ctx context.Context, p *sim.Process) int {
	flags := newFlags("hybrid-overlay-node")
	node := flags.String("node", "", "")
	kubeconfig := flags.String("bootstrap-kubeconfig", "", "")
	ca := flags.String("k8s-cacert", "", "")
	logFile := flags.String("logfile", "", "")
	certDir := flags.String("cert-dir", "", "")
	duration := flags.Duration("cert-duration", 10*time.Minute, "")
	tolerate(flags, "windows-service", "k8s-apiserver hybrid-overlay-vxlan-port loglevel "+
		"k8s-kubeconfig k8s-token logfile-maxsize logfile-maxbackups logfile-maxage")
	if err := parse(flags, p.Args[1:]); err != nil {
		return refuse(p, err)
	}
	if *node == "" {
		return refuse(p, errors.New("missing node name"))
	}
	log := p.Stderr
	if *logFile != "" {
		file, err := openLog(p, *logFile)
		if err != nil {
			return refuse(p, err)
		}
		defer func() { _ = file.Close() }()
		log = file
	}
	for _, needed := range []string{*ca, *certDir} {
		if _, err := p.Host.Files.Stat(needed); err != nil {
			return refuse(p, err)
		}
	}
	config, err := loadKubeconfig(p.Host.Files, *kubeconfig)
	if err != nil {
		return refuse(p, err)
	}
	identity := followed{files: p.Host.Files, kubeconfig: *kubeconfig}
	server, err := connect(config, "hybrid-overlay-node", p.Host.System.Now, identity.get)
	if err != nil {
		return refuse(p, err)
	}
	defer server.close()
	ctx, lines := withLog(ctx, log, p.Host.System.Now)
	lines.Info("stand-in started", "program", "hybrid-overlay-node", "node", *node)
	p.Running()
	o := &overlay{Process: p, node: *node, certDir: *certDir, duration: *duration, server: server, log: lines}
	var group sync.WaitGroup
	group.Go(func() { o.identify(ctx) })
	followNode(ctx, server, *node, lines, o.sync)
	group.Wait()
	return 0
}

// sync creates the network for the Node's subnet and writes the address of the gateway to an annotation of the Node.
func (o *overlay) sync(ctx context.Context, node *corev1.Node) error {
	text := node.Annotations[contract.HybridSubnetAnnotation]
	if text == "" {
		o.log.V(1).Info("no subnet yet", "node", o.node)
		return nil
	}
	subnet, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("reading the subnet of the node: %w", err)
	}
	if err := o.ensureNetwork(ctx, subnet); err != nil {
		return err
	}
	mac := gatewayMAC(o.node)
	if node.Annotations[contract.HybridMACAnnotation] == mac {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "annotations": map[string]string{contract.HybridMACAnnotation: mac},
	}})
	if err != nil {
		return fmt.Errorf("writing the gateway's annotation: %w", err)
	}
	_, err = o.server.client.CoreV1().Nodes().Patch(ctx, o.node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (o *overlay) ensureNetwork(ctx context.Context, subnet netip.Prefix) error {
	found, err := o.Host.Network.HNSNetwork(ctx, contract.HybridOverlayNetwork)
	if err == nil && found.Subnet == subnet {
		return nil
	}
	if err != nil && !errors.Is(err, winos.ErrNotFound) {
		return fmt.Errorf("looking for the HNS network: %w", err)
	}
	address, err := o.Host.Network.NodeIP(ctx)
	if err != nil {
		return fmt.Errorf("finding the address of the network card: %w", err)
	}
	// Windows removes overlay networks when it boots.
	made, err := o.MakeNetwork(winos.HNSNetwork{Name: contract.HybridOverlayNetwork, Subnet: subnet,
		ManagementIP: address, VNI: 4097})
	if err != nil {
		return fmt.Errorf("creating the HNS network: %w", err)
	}
	o.log.Info("created HNS network", "network", made.Name, "subnet", made.Subnet.String())
	return nil
}

// gatewayMAC returns a MAC address in Microsoft's range. It depends only on the name of the node.
func gatewayMAC(node string) string {
	digest := sha256.Sum256([]byte(node))
	return fmt.Sprintf("00:15:5d:%02x:%02x:%02x", digest[0], digest[1], digest[2])
}
