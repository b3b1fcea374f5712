package cluster

import (
	"io"
	"time"
)

const (
	// ServiceNetwork is the range of Service addresses. It is the default of OpenShift.
	ServiceNetwork = "172.30.0.0/16"
	// apiServiceIP is the first address of ServiceNetwork.
	apiServiceIP = "172.30.0.1"

	defaultNodeMonitorGrace = 20 * time.Second
	defaultSigningDuration  = 365 * 24 * time.Hour
	// defaultStartTimeout is sufficient on two busy cores. A start normally takes about 5 s.
	defaultStartTimeout = 90 * time.Second
)

// Options configure a cluster. The zero value is valid.
type Options struct {
	// Binaries are the programs to run. The zero value builds them, or takes them from the cache.
	Binaries Binaries
	// Progress receives the output of Build. Nil discards it.
	Progress io.Writer
	// AnyKubectl is passed to BuildOptions.
	AnyKubectl bool
	// DataDir contains keys, logs, kubeconfigs and the data of etcd. The directory must be empty or absent. If DataDir
	// is not set, a new directory is created in the system's temporary folder.
	DataDir string
	// Keep keeps the data directory at Stop.
	Keep bool
	// Audit makes the API server write each request, without its body, to Cluster.AuditLog.
	Audit bool
	// PodNetwork is the prefix of the nodes' podCIDRs, as on kubeadm clusters. If it is set, the controller that
	// approves the requests of authorized kubelets also runs. For OpenShift, leave it empty: other components assign
	// podCIDRs and approve requests.
	PodNetwork string
	// NodeMonitorGrace is how long a node can be unresponsive before it is marked unhealthy. Zero means 20 s. Real
	// clusters wait about 50 s.
	NodeMonitorGrace time.Duration
	// SigningDuration is the maximum lifetime of a certificate that the controller manager signs. Zero means the
	// default of one year. See Cluster.SetSigningDuration.
	SigningDuration time.Duration
	// StartTimeout limits the start without the build. Zero means 90 s.
	StartTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.NodeMonitorGrace == 0 {
		o.NodeMonitorGrace = defaultNodeMonitorGrace
	}
	if o.SigningDuration == 0 {
		o.SigningDuration = defaultSigningDuration
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = defaultStartTimeout
	}
	return o
}
