package program

import (
	"time"

	"github.com/windows-nodes/wmco/lab/sim"
)

// Options configure the stand-ins. With the zero value, they behave like the real programs.
type Options struct {
	// LeaseInterval is how often kubelet renews the lease of its Node. Default: 10 s.
	LeaseInterval time.Duration
	// StatusInterval is how often kubelet reports an unchanged status of its Node. Default: 5 min.
	StatusInterval time.Duration
	// Poll is how often kubelet checks the container runtime and the network of its machine. Default: 250 ms.
	Poll time.Duration
	// PodStop is how long a container continues to run after it was asked to stop. It ends at the latest when its grace
	// period ends. Default: the whole grace period.
	PodStop time.Duration
	// ProxyStart is how long kube-proxy waits after it has found its network. Default: 10 s.
	ProxyStart time.Duration
}

// Standins returns the stand-ins. The keys are the names of their exes in lower case.
func Standins(options Options) map[string]sim.Program {
	for value, otherwise := range map[*time.Duration]time.Duration{
		&options.LeaseInterval:  10 * time.Second,
		&options.StatusInterval: 5 * time.Minute,
		&options.Poll:           250 * time.Millisecond,
		&options.ProxyStart:     10 * time.Second,
	} {
		if *value == 0 {
			*value = otherwise
		}
	}
	return map[string]sim.Program{
		"kubelet.exe":                  options.kubelet,
		"containerd.exe":               containerd,
		"kube-proxy.exe":               options.kubeProxy,
		"hybrid-overlay-node.exe":      hybridOverlay,
		"flanneld.exe":                 flannel,
		"windows_exporter.exe":         exporter,
		"csi-proxy.exe":                csiProxy,
		"azure-cloud-node-manager.exe": cloudNode,
	}
}
