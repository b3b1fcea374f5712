package program

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/windows-nodes/wmco/lab/sim"
)

// kubelet simulates one run of kubelet:
//
//	flags, configuration ─▶ bootstrap (client certificate, kubeconfig) ─▶ register
//	                     ─▶ status, lease, pods, certificates until stopped
//
// The stand-in runs no containers. On its port, it serves only node logs and some metrics. It watches only its own pods
// and its Node.
type kubelet struct {
	*sim.Process
	options  Options
	flags    kubeletFlags
	config   kubeletconfigv1beta1.KubeletConfiguration
	node     string
	ip       netip.Addr
	identity *pair
	server   *access
	log      logr.Logger
	// unknown receives a signal when the cluster marks the Node as unknown.
	unknown chan struct{}
}

// kubelet implements kubelet.exe.
func (o Options) kubelet(ctx context.Context, p *sim.Process) int {
	k, err := newKubelet(ctx, p, o)
	if err != nil {
		return refuse(p, err)
	}
	ctx, k.log = withLog(ctx, p.Stderr, p.Host.System.Now)
	p.Running()
	if err := k.run(ctx); err != nil && ctx.Err() == nil {
		return refuse(p, fmt.Errorf("running kubelet: %w", err))
	}
	return 0
}

// newKubelet parses the flags and the configuration. If they are invalid, it returns an error.
func newKubelet(ctx context.Context, p *sim.Process, o Options) (*kubelet, error) {
	flags, err := parseKubeletFlags(p.Args[1:])
	if err != nil {
		return nil, err
	}
	config, err := readKubeletConfig(p.Host.Files, flags.config)
	if err != nil {
		return nil, err
	}
	name := flags.hostname
	if name == "" {
		facts, err := p.Host.System.Facts(ctx)
		if err != nil {
			return nil, fmt.Errorf("finding the host name: %w", err)
		}
		name = facts.Hostname
	}
	ip := flags.nodeIP
	if !ip.IsValid() {
		if ip, err = p.Host.Network.NodeIP(ctx); err != nil {
			return nil, fmt.Errorf("finding the node's address: %w", err)
		}
	}
	k := &kubelet{Process: p, options: o, flags: flags, config: config, node: strings.ToLower(strings.TrimSpace(name)),
		ip: ip, unknown: make(chan struct{}, 1)}
	k.identity = &pair{files: p.Host.Files, path: flags.certDir + clientPair, replaced: func() {}}
	return k, nil
}

func (k *kubelet) run(ctx context.Context) error {
	if err := k.bootstrap(ctx); err != nil {
		return err
	}
	config, err := loadKubeconfig(k.Host.Files, k.flags.kubeconfig)
	if err != nil {
		return err
	}
	if k.server, err = connect(config, "kubelet", k.Host.System.Now, k.identity.get); err != nil {
		return err
	}
	defer k.server.close()
	k.identity.replaced = k.server.reconnect
	serving := k.servingCertificate()
	stop, err := k.serve(ctx, serving.store)
	if err != nil {
		return err
	}
	defer stop()
	registered, err := k.register(ctx)
	if err != nil {
		return err
	}
	return k.keepAlive(ctx, registered, serving)
}

// keepAlive renews the lease, the status and the certificates of the Node until ctx ends.
func (k *kubelet) keepAlive(ctx context.Context, registered registration, serving managedCertificate) error {
	group, ctx := errgroup.WithContext(ctx)
	if k.config.RotateCertificates {
		group.Go(func() error { return k.keepCertificate(ctx, k.clientCertificate()) })
	}
	if k.config.ServerTLSBootstrap {
		group.Go(func() error { return k.keepCertificate(ctx, serving) })
	}
	pods := newPodLoop(k)
	group.Go(func() error { return k.renewLease(ctx, registered.uid) })
	group.Go(func() error { return k.reportStatus(ctx, registered, pods) })
	group.Go(func() error { return pods.run(ctx) })
	group.Go(func() error { k.watchNode(ctx); return nil })
	group.Go(func() error { return k.endAtExpiry(ctx) })
	return group.Wait()
}

// certificateLimit is how long kubelet continues to run after its client certificate has expired, if the API server
// answers. Then kubelet exits, and the service manager starts it again.
const certificateLimit = 5 * time.Minute

// endAtExpiry ends kubelet if its client certificate has expired and couldn't be renewed. When kubelet starts again, it
// tries to get a certificate with its bootstrap credential.
func (k *kubelet) endAtExpiry(ctx context.Context) error {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		current := k.identity.get()
		if current == nil || k.Host.System.Now().After(current.Leaf.NotAfter.Add(certificateLimit)) {
			return errors.New("the client certificate has expired")
		}
	}
}
