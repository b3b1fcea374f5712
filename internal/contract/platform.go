package contract

// Platform is the cluster's platform, in lower case. Any other value is treated like PlatformNone.
type Platform string

// Platforms that need different settings for nodes or Machines, or that the documentation describes.
const (
	PlatformNone    Platform = "none"
	PlatformVSphere Platform = "vsphere"
	PlatformNutanix Platform = "nutanix"
	PlatformAWS     Platform = "aws"
	PlatformAzure   Platform = "azure"
	PlatformGCP     Platform = "gcp"
)

// NodeName returns the fact that becomes the name of a host's Node on this platform. The cloud controllers of AWS and
// Google's cloud find a machine by its name in the cloud. vSphere's cloud controller uses the name that VMware Tools
// report, which includes the primary DNS suffix, for example the suffix of a domain.
func (p Platform) NodeName() Fact {
	switch p {
	case PlatformAWS:
		return FactAWSHostname
	case PlatformGCP:
		return FactGCPHostname
	case PlatformVSphere:
		return FactFullHostname
	}
	return FactHostname
}
