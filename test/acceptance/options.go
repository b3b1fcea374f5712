package acceptance

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

// Disruption is a change of the cluster that others may notice. A run makes it only if the user allows it.
type Disruption string

// The disruptions that a user can allow.
const (
	// DisruptSettings changes the WindowsMachineConfig and restores it. The change reaches every Windows node.
	DisruptSettings Disruption = "settings"
	// DisruptRollout deletes the published services manifest. The operator must create it again.
	DisruptRollout Disruption = "rollout"
	// DisruptEntries adds malformed entries. The operator reports them, and alerts may fire.
	DisruptEntries Disruption = "entries"
)

// Disruptions returns all disruptions with a description of each.
func Disruptions() [][2]string {
	return [][2]string{
		{string(DisruptEntries), "malformed entries in windows-instances, which the operator reports"},
		{string(DisruptRollout), "deleting the published services manifest, which is restored"},
		{string(DisruptSettings), "changing the WindowsMachineConfig, which reaches all Windows nodes; it is restored"},
	}
}

// Need is a feature that some rows need and that not every cluster has.
type Need string

// The features that a cluster may lack.
const (
	NeedContainers   Need = "containers"   // containers start on nodes
	NeedScheduler    Need = "scheduler"    // a scheduler places pods
	NeedLoadBalancer Need = "loadbalancer" // Services of type LoadBalancer get an address
	NeedStorage      Need = "storage"      // a default StorageClass that works on Windows
	NeedMetrics      Need = "metrics"      // the metrics API, for HorizontalPodAutoscalers
)

// Needs returns all needs.
func Needs() []Need {
	return []Need{NeedContainers, NeedScheduler, NeedLoadBalancer, NeedStorage, NeedMetrics}
}

// Host is a host that a run may list in windows-instances, so that it becomes a node.
type Host struct {
	// Address and Settings are the key and the value of the host's entry in windows-instances.
	Address, Settings string
}

// ParseHost reads ADDRESS=username=NAME[,port=…][,hostKey=…].
func ParseHost(text string) (Host, error) {
	address, settings, _ := strings.Cut(text, "=")
	if !strings.Contains(settings, "=") {
		return Host{}, fmt.Errorf("host %q is not of the form ADDRESS=username=NAME[,port=PORT][,hostKey=KEY]", text)
	}
	list := &corev1.ConfigMap{Data: map[string]string{address: settings}}
	if _, rejected := inventory.Parse(list); len(rejected) > 0 {
		return Host{}, rejected[0].Problem
	}
	return Host{Address: address, Settings: settings}, nil
}

// Evidence collects results of a first run for people who did not watch it.
type Evidence interface {
	// Add stores a text under a name, which may contain slashes.
	Add(name string, text []byte)
	// Collect stores the current state of objects and nodes.
	Collect(ctx context.Context)
}

// none is an Evidence that discards everything.
type none struct{}

// Add does nothing.
func (none) Add(string, []byte) {}

// Collect does nothing.
func (none) Collect(context.Context) {}

// Options of a run.
type Options struct {
	// Config is the connection to the API server. Required.
	Config *rest.Config
	// Namespace is the operator's namespace. Default: contract.OperatorNamespace.
	Namespace string
	// Hosts are the hosts that the run may list. Without hosts, rows about nodes use the existing nodes.
	Hosts []Host
	// Disrupt lists the disruptions that the user allows.
	Disrupt []Disruption
	// Lacks lists features that the cluster doesn't have, with the reason.
	Lacks map[Need]string
	// Image is the image of rows with containers. Default: DefaultImage.
	Image string
	// FirstHour also tests the lines of docs/first-run.md.
	FirstHour bool
	// Evidence receives the results of the first run. Nil discards them.
	Evidence Evidence
	// HostImage is the image of pods that run commands on hosts during the first run. Default: DefaultHostImage.
	HostImage string
	// NeverRun also tests rows that no one has run yet.
	NeverRun bool
	// Only lists the rows to test. Default: all rows.
	Only []string
	// Progress receives a line for each step. Nil discards it.
	Progress io.Writer
	// JoinTimeout is how long a host may take to become a node. LeaveTimeout is how long a host may take to leave.
	// Defaults: 45 and 20 minutes, because hosts reboot and download gigabytes.
	JoinTimeout, LeaveTimeout time.Duration
	// Timeout is the time limit of every other wait. Default: 5 minutes.
	Timeout time.Duration
	// Pace is the interval between two polls. Default: 2 seconds.
	Pace time.Duration
	// Outage is how long the API server may be unavailable before a request fails. Default: 5 minutes, because the
	// upgrade of a control plane takes minutes.
	Outage time.Duration
	// Alive is how long a run counts as alive after it last renewed its record. Default: one minute.
	Alive time.Duration
}

func (o Options) defaulted() Options {
	o.Namespace = cmp.Or(o.Namespace, contract.OperatorNamespace)
	o.Image = cmp.Or(o.Image, DefaultImage)
	o.HostImage = cmp.Or(o.HostImage, DefaultHostImage)
	if o.Evidence == nil {
		o.Evidence = none{}
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	o.JoinTimeout = cmp.Or(o.JoinTimeout, 45*time.Minute)
	o.LeaveTimeout = cmp.Or(o.LeaveTimeout, 20*time.Minute)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Minute)
	o.Pace = cmp.Or(o.Pace, 2*time.Second)
	o.Outage = cmp.Or(o.Outage, 5*time.Minute)
	o.Alive = cmp.Or(o.Alive, time.Minute)
	return o
}

// rows returns the rows of the acceptance list and, if requested, of the first run.
func (o Options) rows() ([]Row, error) {
	rows, err := Rows()
	if err != nil || !o.FirstHour {
		return rows, err
	}
	more, err := firstHour()
	return append(rows, more...), err
}

// wants reports whether a row must be tested.
func (o Options) wants(number string) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, number)
}
