package contract

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Manifest is the desired state of a node, published in the ConfigMap windows-services-<revision>. It contains no
// secrets. Add fields, but never remove or rename one: a newer daemon on trial writes the previous revision's manifest
// back to the state file, and would lose fields that it does not know.
type Manifest struct {
	Services        []Service         `json:"services"`
	Files           []File            `json:"files"`
	EnvironmentVars map[string]string `json:"environmentVars,omitempty"`
	// WatchedEnvironmentVars are names of variables. If neither EnvironmentVars nor the confidential environment sets
	// such a variable, the daemon removes it from the node.
	WatchedEnvironmentVars []string `json:"watchedEnvironmentVars,omitempty"`
	// Confidential is the digest of the manifest's Confidential, as Confidential.Encode returns it, or empty.
	Confidential string `json:"confidential,omitempty"`
	// ConfidentialEnvironment is a digest of the environment in the Confidential. The digest changes with the
	// environment, but doesn't reveal it: see Confidential.EnvironmentDigest.
	ConfidentialEnvironment string `json:"confidentialEnvironment,omitempty"`
	// PodNetwork is the name of the pods' HNS network. If it is empty, the name is HybridOverlayNetwork.
	PodNetwork string `json:"podNetwork,omitempty"`
	// Daemon has the daemon's own settings. If it is nil, the defaults apply.
	Daemon *DaemonSettings `json:"daemon,omitempty"`
}

// DaemonSettings are the settings of the daemon itself. If they change, no service is restarted.
type DaemonSettings struct {
	Debug bool `json:"debug,omitempty"`
	// Log has the limits of the daemon's own log. Its fields Path and Rotates are ignored.
	Log *Log `json:"log,omitempty"`
}

// Log is a log file of a service, with the limits that keep it from filling the disk. 0 means no limit.
type Log struct {
	// Path is the file that the service writes. Older files are in the same folder. Their names begin with the name of
	// this file without its extension, followed by a hyphen, and have the same extension: kubelet-20260102-150405.log
	// is an older kubelet.log.
	Path string `json:"path"`
	// Rotates means that the service, or the program that runs it, renames a full file itself. If Rotates is false, the
	// service keeps its file open for appending, so the file can't be renamed. Then the daemon copies the content of a
	// full file to another file and empties the full file.
	Rotates bool `json:"rotates,omitempty"`
	// MaxSize is the size, in bytes, of a full file.
	MaxSize int64 `json:"maxSize,omitempty"`
	// MaxAgeSeconds is the maximum age of an older file, by its time of modification. The daemon removes files beyond
	// this age, even if Rotates is set.
	MaxAgeSeconds int64 `json:"maxAgeSeconds,omitempty"`
	// MaxFiles is the maximum number of older files. The daemon removes the oldest, even if Rotates is set.
	MaxFiles int `json:"maxFiles,omitempty"`
}

// Service is one Windows service.
type Service struct {
	Name string `json:"name"`
	// Command is the full command line. The daemon replaces the variables in it by their values, as literal text.
	Command       string         `json:"path"`
	NodeVariables []NodeVariable `json:"nodeVariablesInCommand,omitempty"`
	// HostVariables are facts that the daemon finds on the host itself, without a script.
	HostVariables []HostVariable `json:"hostVariablesInCommand,omitempty"`
	Dependencies  []string       `json:"dependencies,omitempty"`
	// Bootstrap means that the service starts before the Node exists. Such a service uses no NodeVariables and
	// depends only on bootstrap services.
	Bootstrap bool `json:"bootstrap"`
	// Priority orders starts, lowest first. A service has a higher priority than all services that it depends on, and
	// bootstrap services have lower priorities than all others.
	Priority uint `json:"priority"`
	// Disruptive means that a restart of this service affects pods.
	Disruptive bool `json:"disruptive,omitempty"`
	// RequiresFile is a file that another program writes. Without this file, the service would end at once. The daemon
	// starts the service as soon as the file exists. No other service waits for this service.
	RequiresFile string `json:"requiresFile,omitempty"`
	// Log is the service's log, or nil. The daemon applies its limits. If only this field changes, no service restarts.
	Log *Log `json:"log,omitempty"`
}

// NodeVariable is a value taken from the Node object.
type NodeVariable struct {
	// Name is the text to replace in a command or template.
	Name string `json:"name"`
	// JSONPath is a kubectl JSONPath such as {.metadata.name}.
	JSONPath string `json:"nodeObjectJsonPath"`
}

// HostVariable is a value that the daemon finds on the host.
type HostVariable struct {
	Name string `json:"name"`
	Fact Fact   `json:"fact"`
}

// Fact is the name of a fact about the daemon's host.
type Fact string

// Facts of a host.
const (
	FactHostname     Fact = "hostname"     // lower-case host name; on most platforms the name of the Node
	FactNodeIP       Fact = "nodeIP"       // IPv4 address of the interface with the default route
	FactSourceVIP    Fact = "sourceVIP"    // IPv4 address of the HNS endpoint VIPEndpoint on the pods' HNS network
	FactHNSSubnet    Fact = "hnsSubnet"    // IPv4 prefix of the pods' HNS network
	FactManagementIP Fact = "managementIP" // management IP of the pods' HNS network
	// FactFullHostname is the lower-case host name with the host's primary DNS suffix, if it has one.
	FactFullHostname Fact = "fullHostname"
	// FactAWSHostname is the private DNS name of the machine in AWS, in lower case: the first word of
	// latest/meta-data/local-hostname of the metadata service (version 2, with a token).
	FactAWSHostname Fact = "awsHostname"
	// FactGCPHostname is the machine's name in Google's cloud, in lower case: computeMetadata/v1/instance/hostname,
	// requested with the header Metadata-Flavor: Google. A name of more than 63 characters is cut before its first dot,
	// and if it is still too long, after 63 characters.
	FactGCPHostname Fact = "gcpHostname"
	// FactCloudNodeKubeconfig is the path of a kubeconfig that the daemon writes. The kubeconfig contains a token of
	// the ServiceAccount CloudNodeServiceAccount. The token is bound to the Node, and the daemon renews it.
	FactCloudNodeKubeconfig Fact = "cloudNodeKubeconfig"
	// FactFlannelKubeconfig is like FactCloudNodeKubeconfig, for FlannelServiceAccount.
	FactFlannelKubeconfig Fact = "flannelKubeconfig"
)

// ServiceToken is a token, bound to the Node, that the daemon stores for a service while the manifest contains Fact.
type ServiceToken struct {
	Fact    Fact
	Account string
	Service string
	// Token and Kubeconfig are the paths of the files that the daemon writes.
	Token, Kubeconfig string
}

// ServiceTokens returns all tokens that a manifest can request.
func ServiceTokens() []ServiceToken {
	return []ServiceToken{
		{Fact: FactCloudNodeKubeconfig, Account: CloudNodeServiceAccount, Service: ServiceCloudNode,
			Token: PathCloudNodeToken, Kubeconfig: PathCloudNodeKubeconfig},
		{Fact: FactFlannelKubeconfig, Account: FlannelServiceAccount, Service: ServiceFlannel,
			Token: PathFlannelToken, Kubeconfig: PathFlannelKubeconfig},
	}
}

// KubeconfigServices returns the services that read the kubeconfig for the API server only when they start.
func KubeconfigServices() []string {
	names := []string{ServiceKubelet, ServiceKubeProxy}
	for _, t := range ServiceTokens() {
		names = append(names, t.Service)
	}
	return names
}

// BootstrapCA returns the CA of the API server, in PEM. It is empty if the manifest has no such CA.
func (m Manifest) BootstrapCA() string { return m.content(PathBootstrapCA) }

// ClusterDomain returns the DNS domain that kubelet gives to pods. It is empty if the manifest has no such domain.
func (m Manifest) ClusterDomain() string {
	var config struct {
		ClusterDomain string `json:"clusterDomain"`
	}
	if json.Unmarshal([]byte(m.content(PathKubeletConfig)), &config) != nil {
		return ""
	}
	return config.ClusterDomain
}

func (m Manifest) content(path string) string {
	i := slices.IndexFunc(m.Files, func(f File) bool { return f.Path == path })
	if i < 0 {
		return ""
	}
	return m.Files[i].Content
}

// Token returns the ServiceToken that has this fact. It returns false if the fact isn't about a token.
func (f Fact) Token() (ServiceToken, bool) {
	for _, t := range ServiceTokens() {
		if t.Fact == f {
			return t, true
		}
	}
	return ServiceToken{}, false
}

// HNSNetwork returns the name of the pods' HNS network.
func (m Manifest) HNSNetwork() string { return cmp.Or(m.PodNetwork, HybridOverlayNetwork) }

// Blobs returns the digests and sizes of the payload that the manifest needs, without duplicates.
func (m Manifest) Blobs() []Blob {
	seen := make(map[string]bool, len(m.Files))
	blobs := make([]Blob, 0, len(m.Files))
	for _, f := range m.Files {
		if f.Digest != "" && !seen[f.Digest] {
			seen[f.Digest] = true
			blobs = append(blobs, Blob{Digest: f.Digest, Size: f.Size})
		}
	}
	return blobs
}

// DaemonProgram returns the file of the daemon's own program. It returns false if the manifest lacks this file.
func (m Manifest) DaemonProgram() (File, bool) {
	for _, f := range m.Files {
		if daemonProgram(f) {
			return f, true
		}
	}
	return File{}, false
}

// File is one managed file, either a payload blob (Digest) or a text (Content).
type File struct {
	// Path is absolute, with backslashes.
	Path string `json:"path"`
	// Digest is the lower-case hex SHA-256 of a payload blob, and Size is the blob's length in bytes.
	Digest string `json:"sha256,omitempty"`
	Size   int64  `json:"size,omitempty"`
	// Content is the text of a small file, with variables replaced as in commands. A file with HostVariables or
	// NodeVariables is written when the values of its variables are known. A file with NodeVariables or with a fact
	// about HNS is a late file: it is not written at bootstrap.
	Content       string         `json:"content,omitempty"`
	NodeVariables []NodeVariable `json:"nodeVariables,omitempty"`
	HostVariables []HostVariable `json:"hostVariables,omitempty"`
	// Services are the names of the services that are restarted when this file changes.
	Services []string `json:"services,omitempty"`
}
