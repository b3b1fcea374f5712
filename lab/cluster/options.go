package cluster

import (
	"io"
	"time"
)

const (
	// ServiceNetwork has the addresses of Services; it is OpenShift's default.
	ServiceNetwork = "172.30.0.0/16"
	// apiServiceIP is its first address.
	apiServiceIP = "172.30.0.1"

	defaultNodeMonitorGrace = 20 * time.Second
	defaultSigningDuration  = 365 * 24 * time.Hour
	// defaultStartTimeout leaves room for two busy cores: a start takes about 5 s.
	defaultStartTimeout = 90 * time.Second
)

// Options describes a cluster. The zero value is a good one.
type Options struct {
	// Binaries are the programs to run. The zero value builds them, or takes
	// them from the cache.
	Binaries Binaries
	// Progress receives the lines of Build, when that is called. Nil discards.
	Progress io.Writer
	// AnyKubectl is that of BuildOptions.
	AnyKubectl bool
	// DataDir holds keys, logs, kubeconfigs and etcd's data. It must be empty or
	// absent. Empty means a new directory in the system's temporary folder.
	DataDir string
	// Keep leaves the data directory in place at Stop.
	Keep bool
	// Audit makes the API server write each request, without its body, to
	// Cluster.AuditLog.
	Audit bool
	// PodNetwork is the prefix of which each node gets a part as its podCIDR, as on kubeadm's clusters.
	// There, the controller runs, too, that approves requests of kubelets whom a rule lets ask for it. On
	// OpenShift both is others' alone, and this is empty.
	PodNetwork string
	// NodeMonitorGrace is how long a node may be unresponsive before it is marked
	// unhealthy; zero means 20 s, while real clusters wait about 50 s.
	NodeMonitorGrace time.Duration
	// SigningDuration is the longest life of a certificate that the controller manager signs; zero means
	// its default of a year. See Cluster.SetSigningDuration.
	SigningDuration time.Duration
	// StartTimeout bounds the start without the build; zero means 90 s.
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
