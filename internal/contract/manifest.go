package contract

// Manifest is the desired state of a node, published in the ConfigMap windows-services-<version>. It holds nothing secret.
type Manifest struct {
	Services        []Service         `json:"services"`
	Files           []File            `json:"files"`
	EnvironmentVars map[string]string `json:"environmentVars,omitempty"`
	// WatchedEnvironmentVars are removed from the node when EnvironmentVars does not set them.
	WatchedEnvironmentVars []string `json:"watchedEnvironmentVars,omitempty"`
}

// Service is one Windows service.
type Service struct {
	Name string `json:"name"`
	// Command is the full command line; the contract calls it path. Variables in it are replaced by literal text substitution of their names.
	Command       string         `json:"path"`
	NodeVariables []NodeVariable `json:"nodeVariablesInCommand,omitempty"`
	// HostVariables are facts that the daemon finds on the host by itself; no script runs.
	HostVariables []HostVariable `json:"hostVariablesInCommand,omitempty"`
	// PreScripts are part of the contract's format. We publish none, and the daemon refuses a manifest that has any: it runs no shell.
	PreScripts   []PreScript `json:"powershellPreScripts,omitempty"`
	Dependencies []string    `json:"dependencies,omitempty"`
	// Bootstrap services start before the Node exists: they use no NodeVariables and depend on bootstrap services only.
	Bootstrap bool `json:"bootstrap"`
	// Priority orders starts, lowest first; every bootstrap priority is lower than every other.
	Priority uint `json:"priority"`
	// Disruptive says that pods feel a restart of this service.
	Disruptive bool `json:"disruptive,omitempty"`
}

// NodeVariable is a value taken from the Node object.
type NodeVariable struct {
	// Name is the text replaced in a command or template.
	Name string `json:"name"`
	// JSONPath is a kubectl JSONPath such as {.metadata.name}.
	JSONPath string `json:"nodeObjectJsonPath"`
}

// HostVariable is a value that the daemon finds on the host.
type HostVariable struct {
	Name string `json:"name"`
	Fact Fact   `json:"fact"`
}

// Fact names something that the daemon knows about its host.
type Fact string

// Facts of a host.
const (
	FactHostname     Fact = "hostname"     // lower-case host name, the node's name
	FactNodeIP       Fact = "nodeIP"       // IPv4 address of the interface of the default route
	FactSourceVIP    Fact = "sourceVIP"    // IPv4 address of the HNS endpoint VIPEndpoint on the hybrid overlay network
	FactHNSSubnet    Fact = "hnsSubnet"    // IPv4 prefix of the hybrid overlay HNS network
	FactManagementIP Fact = "managementIP" // management IP of the hybrid overlay HNS network
)

// PreScript is a PowerShell script of the contract's format.
type PreScript struct {
	VariableName string   `json:"variableName,omitempty"`
	Path         string   `json:"path"`
	NodeArgs     []string `json:"NodeArgs,omitempty"`
}

// File is one managed file. Exactly one of Digest and Content says what it holds.
type File struct {
	// Path is absolute, with backslashes.
	Path string `json:"path"`
	// Digest is the lower-case hex SHA-256 of a payload blob, and Size its length in bytes.
	Digest string `json:"sha256,omitempty"`
	Size   int64  `json:"size,omitempty"`
	// Content is the text of a small file, with variables replaced as in commands. A file that has HostVariables or NodeVariables is
	// written once they are known; it is a late file (not written at bootstrap) when it names NodeVariables or an HNS fact.
	Content       string         `json:"content,omitempty"`
	NodeVariables []NodeVariable `json:"nodeVariables,omitempty"`
	HostVariables []HostVariable `json:"hostVariables,omitempty"`
	// Services are restarted when this file changes.
	Services []string `json:"services,omitempty"`
}
