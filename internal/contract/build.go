package contract

import "strconv"

// WindowsBuild is a long-term release of Windows Server that container images of the same build
// exist for.
type WindowsBuild struct {
	Number  int
	Product string
	// Update is the least update of the build (UBR) that a host must have; 0 means any.
	Update int
	// RuntimeClass is the name of the RuntimeClass that selects its nodes.
	RuntimeClass string
}

// WindowsBuilds are those that hosts may have, the oldest first.
func WindowsBuilds() []WindowsBuild {
	return []WindowsBuild{
		{17763, "Windows Server 2019", 0, "windows2019"},
		// It takes part in an overlay network from an update of April 2022 on: KB5012637, named by the overlay's own
		// requirements.
		{20348, "Windows Server 2022", 681, "windows2022"},
		{26100, "Windows Server 2025", 0, "windows2025"},
	}
}

// Label is the value that kubelet gives BuildLabel on nodes of this build.
func (b WindowsBuild) Label() string { return "10.0." + strconv.Itoa(b.Number) }

const (
	// RuntimeClassHandler is the handler of containerd for process-isolated Windows containers.
	RuntimeClassHandler = "runhcs-wcow-process"
)
