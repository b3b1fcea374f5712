package contract

import "strconv"

// WindowsBuild is a supported long-term release of Windows Server. Each build has its own container images.
type WindowsBuild struct {
	Number  int
	Product string
	// Update is the minimum update (UBR) that a host of this build must have; 0 means any.
	Update int
	// RuntimeClass is the name of the RuntimeClass that selects nodes of this build.
	RuntimeClass string
}

// WindowsBuilds returns the supported builds, oldest first.
func WindowsBuilds() []WindowsBuild {
	return []WindowsBuild{
		{17763, "Windows Server 2019", 0, "windows2019"},
		// Since an update of April 2022 (KB5012637), this build supports overlay networks.
		{20348, "Windows Server 2022", 681, "windows2022"},
		{26100, "Windows Server 2025", 0, "windows2025"},
	}
}

// Label returns the value of BuildLabel that kubelet sets on nodes of this build.
func (b WindowsBuild) Label() string { return "10.0." + strconv.Itoa(b.Number) }

const (
	// RuntimeClassHandler is the handler of containerd for process-isolated Windows containers.
	RuntimeClassHandler = "runhcs-wcow-process"
)
