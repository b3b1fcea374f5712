package journey

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// Claims keep two instances from being one host: a node name, and an installation of Windows,
// belong to the first instance that claims them.
type Claims struct {
	mu     sync.Mutex
	owners map[string]Claimant
}

// Claimant is the instance that has a node name.
type Claimant struct {
	UID       types.UID
	Key       types.NamespacedName
	MachineID string
}

// NewClaims makes an empty set.
func NewClaims() *Claims { return &Claims{owners: map[string]Claimant{}} }

// Claim takes a node name for an instance, or tells who has it, or has the same installation of
// Windows under another name. Claiming again is fine; claiming another name gives up the one
// before.
func (c *Claims) Claim(nodeName string, by Claimant) (owner Claimant, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, taken := c.owners[nodeName]; taken && owner.UID != by.UID {
		return owner, false
	}
	for _, owner := range c.owners {
		if by.MachineID != "" && owner.MachineID == by.MachineID && owner.UID != by.UID {
			return owner, false
		}
	}
	c.forget(by.UID)
	c.owners[nodeName] = by
	return by, true
}

// Owner of a node name.
func (c *Claims) Owner(nodeName string) (Claimant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner, ok := c.owners[nodeName]
	return owner, ok
}

// HasMachine reports whether an instance has claimed this installation of Windows.
func (c *Claims) HasMachine(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, owner := range c.owners {
		if id != "" && owner.MachineID == id {
			return true
		}
	}
	return false
}

// Forget gives up everything that an instance claimed.
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

// Remember claims again, after a restart, what an instance had claimed before. Where another has its
// installation of Windows, the name is its own all the same.
func (c *Claims) Remember(instance *v1alpha1.WindowsInstance) {
	if instance.Status.NodeName == "" {
		return
	}
	by := Claimant{UID: instance.UID, Key: types.NamespacedName{Namespace: instance.Namespace, Name: instance.Name}}
	if instance.Status.Host != nil {
		by.MachineID = instance.Status.Host.MachineID
	}
	if _, ok := c.Claim(instance.Status.NodeName, by); !ok {
		by.MachineID = ""
		c.Claim(instance.Status.NodeName, by)
	}
}

// HasName reports whether a host has become a node under its name, or has had a credential for it: with
// that it may have a certificate, and with another name it would collect another one.
func HasName(status *v1alpha1.WindowsInstanceStatus) bool {
	return status.NodeUID != "" || status.NodeExpected || len(status.BootstrapCredentials) > 0
}
