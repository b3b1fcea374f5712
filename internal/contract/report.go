package contract

import "time"

// MaxReport is the maximum size of a NodeReport in bytes. The daemon writes no more, and readers read no more.
const MaxReport = 256 << 10

// NodeReport is a daemon's report about its host, in PathReport. It contains names, but no value that could be secret:
// no command, variable's value, file's content or digest.
type NodeReport struct {
	// Time is when the daemon created the report, by the host's clock.
	Time time.Time `json:"time"`
	// Version is the daemon's version.
	Version string        `json:"version"`
	Node    string        `json:"node"`
	State   ReportedState `json:"state"`
	// Reconciled is the result of the last pass of the service; nil before the first pass.
	Reconciled *Reconciled       `json:"reconciled,omitempty"`
	Services   []ReportedService `json:"services"`
	Networks   []ReportedNetwork `json:"networks"`
	Addresses  []string          `json:"addresses"`
	Routes     []ReportedRoute   `json:"routes"`
	// Unread lists the parts that the daemon could not read, and why.
	Unread []string `json:"unread,omitempty"`
	// Omitted counts the entries that were omitted because the report would be too large.
	Omitted int `json:"omitted,omitempty"`
}

// ReportedState is the content of the state file.
type ReportedState struct {
	Revision string `json:"revision"`
	// Verified reports that the revision was applied completely. Before is the previous such revision.
	Verified bool   `json:"verified"`
	Before   string `json:"before,omitempty"`
	// Failed is the last revision that could not be applied, with the reason and the time of the next attempt.
	Failed      string     `json:"failed,omitempty"`
	Why         string     `json:"why,omitempty"`
	FailedUntil *time.Time `json:"failedUntil,omitempty"`
	// Reboots counts the reboots that were requested to prepare the host.
	Reboots int `json:"reboots,omitempty"`
	// Directories, Files, Certificates and Variables count the changes on the host.
	Directories  int      `json:"directories"`
	Files        int      `json:"files"`
	Certificates int      `json:"certificates"`
	Variables    int      `json:"variables"`
	Features     []string `json:"features,omitempty"`
	Routes       []string `json:"routes,omitempty"`
}

// Reconciled is the result of a pass.
type Reconciled struct {
	Time  time.Time `json:"time"`
	Phase string    `json:"phase"`
	// Desired is the revision that the Node names.
	Desired string `json:"desired,omitempty"`
	// Problems are as in the annotation apply-status: a reason, a colon, and the detail.
	Problems []string `json:"problems,omitempty"`
	// Differences are the deviations from the host's revision.
	Differences []Difference `json:"differences,omitempty"`
}

// Difference is one deviation from the host's revision.
type Difference struct {
	// Step is what the daemon does about it, such as StartService.
	Step string `json:"step"`
	Name string `json:"name"`
	Why  string `json:"why"`
}

// ReportedService is a service of the node, as the service manager shows it.
type ReportedService struct {
	Name string `json:"name"`
	// State is Stopped, StartPending, StopPending, Running or Paused; Absent where there is none.
	State string `json:"state"`
	PID   uint32 `json:"pid,omitempty"`
	// Foreign says that the daemon did not create the service.
	Foreign bool `json:"foreign,omitempty"`
}

// ReportedNetwork is a network of pods, of the host network service.
type ReportedNetwork struct {
	Name string `json:"name"`
	// Absent says that the network does not exist.
	Absent       bool   `json:"absent,omitempty"`
	Subnet       string `json:"subnet,omitempty"`
	ManagementIP string `json:"managementIP,omitempty"`
	// VNI is the number of an overlay in VXLAN, if HNS returns it.
	VNI uint32 `json:"vni,omitempty"`
}

// ReportedRoute is a row of the routing table.
type ReportedRoute struct {
	Destination string `json:"destination"`
	NextHop     string `json:"nextHop,omitempty"`
	Interface   string `json:"interface"`
	Metric      uint32 `json:"metric"`
}
