package journey

import (
	"cmp"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// Claims ensures that no two instances have the same host: a node name and an installation of Windows belong to the
// first instance that claims them.
type Claims struct {
	mu     sync.Mutex
	owners map[string]Claimant
}

// Claimant is an instance that claims a node name.
type Claimant struct {
	UID       types.UID
	Key       types.NamespacedName
	MachineID string
	// Hostname is the Windows name of the host, in lower case. IsSole means that no other host may have this name.
	Hostname string
	IsSole   bool
}

// NewClaims returns an empty set of claims.
func NewClaims() *Claims { return &Claims{owners: map[string]Claimant{}} }

// Claim claims a node name for an instance, or returns the instance that prevents the claim: see Other. If the instance
// has claimed another name before, Claim releases that name.
func (c *Claims) Claim(nodeName string, by Claimant) (owner Claimant, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, taken := c.other(nodeName, by); taken {
		return owner, false
	}
	c.forget(by.UID)
	c.owners[nodeName] = by
	return by, true
}

// Other returns another instance that has claimed the node name or the same installation of Windows. If by.IsSole is
// true, Other may also return an instance with the same host name.
func (c *Claims) Other(nodeName string, by Claimant) (owner Claimant, taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.other(nodeName, by)
}

func (c *Claims) other(nodeName string, by Claimant) (owner Claimant, taken bool) {
	if owner, taken = c.owners[nodeName]; taken && owner.UID != by.UID {
		return owner, true
	}
	for _, owner = range c.owners {
		if owner.UID != by.UID && (by.MachineID != "" && owner.MachineID == by.MachineID ||
			by.IsSole && owner.Hostname == by.Hostname) {
			return owner, true
		}
	}
	return Claimant{}, false
}

// Owner returns the instance that has claimed a node name.
func (c *Claims) Owner(nodeName string) (Claimant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner, ok := c.owners[nodeName]
	return owner, ok
}

// Forget releases all claims of an instance.
func (c *Claims) Forget(id types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(id)
}

func (c *Claims) forget(id types.UID) {
	for name, owner := range c.owners {
		if owner.UID == id {
			delete(c.owners, name)
		}
	}
}

// Remember restores the claims of an instance after a restart of the operator. If another instance has the same
// installation of Windows, only the name is restored.
func (c *Claims) Remember(instance *v1alpha1.WindowsInstance) {
	if instance.Status.NodeName == "" {
		return
	}
	by := Claimant{UID: instance.UID, Key: types.NamespacedName{Namespace: instance.Namespace, Name: instance.Name}}
	if host := instance.Status.Host; host != nil {
		by.MachineID, by.Hostname = host.MachineID, cmp.Or(instance.Spec.Hostname, host.Hostname)
	}
	if _, ok := c.Claim(instance.Status.NodeName, by); !ok {
		by.MachineID = ""
		c.Claim(instance.Status.NodeName, by)
	}
}

// HasName reports whether a host became a node with its name, or has got a credential for this name.
func HasName(status *v1alpha1.WindowsInstanceStatus) bool {
	return status.Joined() || status.NodeUID != "" || len(status.BootstrapCredentials) > 0
}
