package contract

import "time"

// MaxReport is the maximum size of a NodeReport in bytes. The daemon writes no more, and readers read no more.
const MaxReport = 256 << 10

// NodeReport is a daemon's report about its host, in PathReport. It contains names, but no value that could be secret:
// no command, no value of a variable, no content of a file, and no digest.
type NodeReport struct {
	// Time is when the daemon created the report, by the host's clock.
	Time    time.Time     `json:"time"`
	Version string        `json:"version"`
	Node    string        `json:"node"`
	State   ReportedState `json:"state"`
	// Reconciled is the result of the last pass of the service. It is nil before the first pass.
	Reconciled *Reconciled       `json:"reconciled,omitempty"`
	Services   []ReportedService `json:"services"`
	Networks   []ReportedNetwork `json:"networks"`
	Addresses  []string          `json:"addresses"`
	Routes     []ReportedRoute   `json:"routes"`
	// Unread lists the parts that the daemon could not read, each with the reason.
	Unread []string `json:"unread,omitempty"`
	// Omitted counts the entries that were omitted because the report would be too large.
	Omitted int `json:"omitted,omitempty"`
}

// ReportedState is a summary of the state file.
type ReportedState struct {
	Revision string `json:"revision"`
	// Verified reports that the revision was completely applied. Before is the previous completely applied revision.
	Verified bool   `json:"verified"`
	Before   string `json:"before,omitempty"`
	// Failed is the last revision that could not be applied. Why gives the reason. The daemon retries at FailedUntil.
	Failed      string     `json:"failed,omitempty"`
	Why         string     `json:"why,omitempty"`
	FailedUntil *time.Time `json:"failedUntil,omitempty"`
	// Reboots counts the reboots that were requested to prepare the host.
	Reboots int `json:"reboots,omitempty"`
	// Directories, Files, Certificates and Variables count the objects that the daemon created or changed.
	Directories  int      `json:"directories"`
	Files        int      `json:"files"`
	Certificates int      `json:"certificates"`
	Variables    int      `json:"variables"`
	Features     []string `json:"features,omitempty"`
	Routes       []string `json:"routes,omitempty"`
}

// Reconciled is the result of a pass of the daemon's reconcile loop.
type Reconciled struct {
	Time  time.Time `json:"time"`
	Phase string    `json:"phase"`
	// Desired is the revision in the Node's DesiredRevisionAnnotation.
	Desired string `json:"desired,omitempty"`
	// Problems have the same form as in ApplyStatusAnnotation: a reason, a colon, and the detail.
	Problems    []string     `json:"problems,omitempty"`
	Differences []Difference `json:"differences,omitempty"`
}

// Difference is a difference between the host and its revision.
type Difference struct {
	// Step is the step that the daemon performs to remove the difference, such as StartService.
	Step string `json:"step"`
	Name string `json:"name"`
	Why  string `json:"why"`
}

// ReportedService is a service of the node, as the service manager shows it.
type ReportedService struct {
	Name string `json:"name"`
	// State is Stopped, StartPending, StopPending, Running or Paused. If the service doesn't exist, it is Absent.
	State string `json:"state"`
	PID   uint32 `json:"pid,omitempty"`
	// Foreign reports that the daemon did not create the service.
	Foreign bool `json:"foreign,omitempty"`
}

// ReportedNetwork is an HNS network of pods.
type ReportedNetwork struct {
	Name         string `json:"name"`
	Absent       bool   `json:"absent,omitempty"`
	Subnet       string `json:"subnet,omitempty"`
	ManagementIP string `json:"managementIP,omitempty"`
	// VNI is the VXLAN identifier of an overlay network, or 0 if HNS doesn't return one.
	VNI uint32 `json:"vni,omitempty"`
}

// ReportedRoute is a row of the routing table.
type ReportedRoute struct {
	Destination string `json:"destination"`
	NextHop     string `json:"nextHop,omitempty"`
	Interface   string `json:"interface"`
	Metric      uint32 `json:"metric"`
}
