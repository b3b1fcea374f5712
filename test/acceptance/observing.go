package acceptance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
)

// observing returns the rows about logs and metrics.
func observing() map[string]trial {
	return map[string]trial{
		"A38": {stage: stageNodes, try: logsAreReadable, readiness: []string{extendWorker}},
	}
}

// maxLog is the number of bytes that are read of a log.
const maxLog = 64 << 10

// logsAreReadable tests row A38: the logs of each node must be readable through the API server.
func logsAreReadable(ctx context.Context, r *run) error {
	nodes, err := r.targets(ctx)
	if err != nil {
		return err
	}
	var problems []error
	tried := 0
	for _, n := range nodes {
		if address := loopback(&n); address != "" {
			r.note("%s has the loopback address %s, and the API server does not connect to a kubelet there", n.Name,
				address)
			continue
		}
		tried++
		for _, path := range []string{"kubelet/kubelet.log", "containerd/containerd.log",
			"wicd/" + contract.ServiceDaemon + ".exe.INFO"} {
			text, err := nodeLog(ctx, r, n.Name, "/logs/"+path)
			if err == nil && len(text) == 0 {
				err = errors.New("the log is empty")
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("reading log %s of node %s: %w", path, n.Name, err))
			}
		}
		if _, err = nodeLog(ctx, r, n.Name, "/logs/?query=kubelet"); err != nil {
			problems = append(problems, fmt.Errorf("querying the log of kubelet on node %s: %w", n.Name, err))
		}
	}
	if tried == 0 {
		return cannot("no node has an address at which the API server connects to a kubelet")
	}
	return errors.Join(problems...)
}

// loopback is the loopback address of a node, if it has one.
func loopback(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if address, err := netip.ParseAddr(a.Address); err == nil && address.IsLoopback() {
			return a.Address
		}
	}
	return ""
}

// nodeLog reads the beginning of a log of a node through the API server.
func nodeLog(ctx context.Context, r *run, node, path string) ([]byte, error) {
	uri := "/api/v1/nodes/" + node + "/proxy" + path
	return beginning(ctx, r.clients.CoreV1().RESTClient().Get().RequestURI(uri))
}

// The function beginning reads at most maxLog bytes of an answer.
func beginning(ctx context.Context, request *rest.Request) ([]byte, error) {
	answer, err := request.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Close() }()
	return io.ReadAll(io.LimitReader(answer, maxLog))
}
