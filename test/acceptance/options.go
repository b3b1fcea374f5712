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

// Disruption is something of the cluster that others may notice, and that a run touches only when the
// user allows it.
type Disruption string

// Disruptions.
const (
	// DisruptSettings changes the WindowsMachineConfig, which reaches every Windows node, and restores it.
	DisruptSettings Disruption = "settings"
	// DisruptRollout deletes the published services manifest, which the operator is to restore.
	DisruptRollout Disruption = "rollout"
	// DisruptEntries lists malformed entries, which the operator reports and alerts may fire for.
	DisruptEntries Disruption = "entries"
)

// Disruptions are all of them, with what each does.
func Disruptions() [][2]string {
	return [][2]string{
		{string(DisruptEntries), "malformed entries in windows-instances, which the operator reports"},
		{string(DisruptRollout), "deleting the published services manifest, which is restored"},
		{string(DisruptSettings), "changing the WindowsMachineConfig, which reaches all Windows nodes; it is restored"},
	}
}

// Need is something that not every cluster has, and that some rows need.
type Need string

// Needs.
const (
	NeedContainers   Need = "containers"   // that start on nodes
	NeedScheduler    Need = "scheduler"    // that places pods
	NeedLoadBalancer Need = "loadbalancer" // for Services of this type
	NeedStorage      Need = "storage"      // a default StorageClass that works on Windows
	NeedMetrics      Need = "metrics"      // the metrics API, for HorizontalPodAutoscalers
)

// Needs are all of them.
func Needs() []Need {
	return []Need{NeedContainers, NeedScheduler, NeedLoadBalancer, NeedStorage, NeedMetrics}
}

// Host is a host that a run may list, and so make a node of.
type Host struct {
	// Address and Settings are the entry of windows-instances.
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

// Evidence collects the results of a first hour for people who were not there.
type Evidence interface {
	// Add keeps a text under a name with slashes.
	Add(name string, text []byte)
	// Collect keeps what objects and nodes say now.
	Collect(ctx context.Context)
}

// none keeps nothing.
type none struct{}

// Add does nothing.
func (none) Add(string, []byte) {}

// Collect does nothing.
func (none) Collect(context.Context) {}

// Options of a run.
type Options struct {
	// Config is how the API server is reached. Required.
	Config *rest.Config
	// Namespace of the operator; contract.OperatorNamespace if empty.
	Namespace string
	// Hosts that may be listed. Without any, rows about nodes look at those that there are.
	Hosts []Host
	// Disrupt is what may be disrupted in addition to what the run makes itself.
	Disrupt []Disruption
	// Lacks says what the cluster does not have, and why.
	Lacks map[Need]string
	// Image is what rows with containers run; DefaultImage if empty.
	Image string
	// FirstHour also tests the lines of docs/first-run.md.
	FirstHour bool
	// Evidence receives what is found there. Nil discards.
	Evidence Evidence
	// HostImage is what looks into hosts in the first hour; DefaultHostImage if empty.
	HostImage string
	// NeverRun also tests rows that are written but have never been run.
	NeverRun bool
	// Only are the rows to try; all if empty.
	Only []string
	// Progress receives a line for each step. Nil discards.
	Progress io.Writer
	// JoinTimeout bounds how long a host may take to become a node, and LeaveTimeout how long to leave;
	// 45 and 20 minutes if zero, for reboots and gigabytes.
	JoinTimeout, LeaveTimeout time.Duration
	// Timeout bounds everything else that is waited for; 5 minutes if zero.
	Timeout time.Duration
	// Pace is how often is looked; 2 seconds if zero.
	Pace time.Duration
	// Outage is how long the API server may be away before a request fails; 5 minutes if zero, since a
	// control plane that is upgraded takes minutes.
	Outage time.Duration
	// Alive is how long a run counts as alive without a sign of it; a minute if zero.
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

// rows returns the rows of the acceptance list, and of the first hour if it is requested.
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
