package contract

import "time"

// MaxReport is the most bytes that a NodeReport has: the daemon writes no more, and nobody reads more.
const MaxReport = 256 << 10

// NodeReport is what the daemon of a node says of its host, in PathReport. It names things, and holds
// no value that could be secret: no command, variable's value, file's content or digest.
type NodeReport struct {
	// Time is when it was looked, by the host's clock.
	Time time.Time `json:"time"`
	// Version is the daemon's.
	Version string        `json:"version"`
	Node    string        `json:"node"`
	State   ReportedState `json:"state"`
	// Reconciled is what came of the last pass of the service; nil before the first one.
	Reconciled *Reconciled       `json:"reconciled,omitempty"`
	Services   []ReportedService `json:"services"`
	Networks   []ReportedNetwork `json:"networks"`
	Addresses  []string          `json:"addresses"`
	Routes     []ReportedRoute   `json:"routes"`
	// Unread are parts that could not be looked at, and why.
	Unread []string `json:"unread,omitempty"`
	// Omitted counts what is left out, because there is too much of it.
	Omitted int `json:"omitted,omitempty"`
}

// ReportedState is what the state file says.
type ReportedState struct {
	Revision string `json:"revision"`
	// Verified says that the revision has held completely; Before is the one that did before it.
	Verified bool   `json:"verified"`
	Before   string `json:"before,omitempty"`
	// Failed is the revision that could not be had last, why, and until when it is left.
	Failed      string     `json:"failed,omitempty"`
	Why         string     `json:"why,omitempty"`
	FailedUntil *time.Time `json:"failedUntil,omitempty"`
	// Reboots are those that were asked for to prepare the host.
	Reboots int `json:"reboots,omitempty"`
	// Directories, Files, Certificates and Variables count what was changed on the host.
	Directories  int      `json:"directories"`
	Files        int      `json:"files"`
	Certificates int      `json:"certificates"`
	Variables    int      `json:"variables"`
	Features     []string `json:"features,omitempty"`
	Routes       []string `json:"routes,omitempty"`
}

// Reconciled is what came of a pass.
type Reconciled struct {
	Time  time.Time `json:"time"`
	Phase string    `json:"phase"`
	// Desired is the revision that the Node names.
	Desired string `json:"desired,omitempty"`
	// Problems are as in the annotation apply-status: a reason, a colon, and the detail.
	Problems []string `json:"problems,omitempty"`
	// Differences are what is not as the host's revision says.
	Differences []Difference `json:"differences,omitempty"`
}

// Difference is a thing that is not as it should be.
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
	// Foreign says that somebody else made it.
	Foreign bool `json:"foreign,omitempty"`
}

// ReportedNetwork is a network of pods, of the host network service.
type ReportedNetwork struct {
	Name string `json:"name"`
	// Absent says that there is none.
	Absent       bool   `json:"absent,omitempty"`
	Subnet       string `json:"subnet,omitempty"`
	ManagementIP string `json:"managementIP,omitempty"`
	// VNI is the number of an overlay in VXLAN, where HNS tells one.
	VNI uint32 `json:"vni,omitempty"`
}

// ReportedRoute is a row of the routing table.
type ReportedRoute struct {
	Destination string `json:"destination"`
	NextHop     string `json:"nextHop,omitempty"`
	Interface   string `json:"interface"`
	Metric      uint32 `json:"metric"`
}
