package policy

import (
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// newMachine is the maximum age of a Machine when its host requests its first certificate. OpenShift's approver uses
// the same limit for Linux nodes.
const newMachine = 2 * time.Hour

// HostID returns the id of a host that joins by itself. The host's certificate and the Secret for its calls contain
// this id. The id is the UID of the instance. For a Machine's host, it is the digest of the host's first key, because
// all Machines have the same user data. The id of such a host is empty until the operator has recorded this key.
func HostID(instance *v1alpha1.WindowsInstance) string {
	if machineOf(instance) != nil {
		return firstKey(instance)
	}
	return string(instance.UID)
}

// firstKey returns the digest of the first key of a host that joins by itself, or "".
func firstKey(instance *v1alpha1.WindowsInstance) string {
	_, key, _ := strings.Cut(instance.Status.HostKey, contract.HostKeyType)
	return key
}

// machineOf returns the Machine of an instance whose host joins by itself with user data, or nil for other instances.
func machineOf(instance *v1alpha1.WindowsInstance) *v1alpha1.Source {
	if source := instance.Spec.Source; instance.Spec.ByItself != nil && source != nil &&
		source.Kind == v1alpha1.SourceMachine {
		return source
	}
	return nil
}

// hostRules returns the rules for the certificate of a host that joins by itself. The host requests its first
// certificate with the token in its command or user data, and renews it with its current certificate.
func hostRules() csrRules {
	return csrRules{request: []csrRule{
		signerIs(certificatesv1.KubeAPIServerClientSignerName),
		subjectIs(contract.HostGroup),
		func(f csrFacts) *csrFault {
			if f.isFirstOfMachine() {
				return namesAreOfNodes(f)
			}
			return noNames(f)
		},
		usagesAre(certificatesv1.UsageClientAuth),
		lifetimeWithin(maxDaemonLifetime, true),
		keyIsStrong,
		requestedByHostOrToken,
		keyIsHeld,
	}, cluster: []csrRule{
		staying,
		forFirst(tokenIsOfThisCommand),
		forFirst(machineExists),
		forFirst(keyIsFirst),
		forFirst(machineIsNew),
	}}
}

// forFirst applies a rule only to the request for a host's first certificate.
func forFirst(rule csrRule) csrRule {
	return func(f csrFacts) *csrFault {
		if !IsFirstKubeletRequest(f.CSR, f.BootstrapUser) {
			return nil
		}
		return rule(f)
	}
}

func (f csrFacts) isFirstOfMachine() bool {
	return f.instance.Machine != nil && IsFirstKubeletRequest(f.CSR, f.BootstrapUser)
}

func requestedByHostOrToken(f csrFacts) *csrFault {
	if IsFirstKubeletRequest(f.CSR, f.BootstrapUser) || requestedByItself(f, contract.HostGroup) {
		return nil
	}
	return fault(CSRRequesterWrong, "neither the host of instance %s nor the token of its command requests this "+
		"certificate", f.instance.Name)
}

// tokenIsOfThisCommand requires the token in the current command of this instance, or a token in the user data.
func tokenIsOfThisCommand(f csrFacts) *csrFault {
	if len(f.JoinCredentials) == 0 {
		return notYet(CSRCredentialUnknown, "no command is published for the host of instance %s", f.instance.Name)
	}
	if !slices.Contains(f.JoinCredentials, CredentialOf(f.CSR)) {
		return fault(CSRCredentialForeign, "the token does not belong to the published command of instance %s",
			f.instance.Name)
	}
	return nil
}

// If the instance was created for a Machine, machineExists requires that this Machine still exists. Otherwise, the
// request waits: the host may belong to a newer Machine with the same address, and this instance is soon removed.
func machineExists(f csrFacts) *csrFault {
	if f.instance.Machine != nil && f.Machine == nil {
		return notYet(CSRMachineNotNew, "the Machine %s does not exist, or has other user data", f.instance.Name)
	}
	return nil
}

// keyIsFirst requires the first key of the host, so a process that reads the token later can't use it.
func keyIsFirst(f csrFacts) *csrFault {
	if f.instance.HostKey != "" && f.instance.HostKey != contract.Digest(f.claim.Request.RawSubjectPublicKeyInfo) {
		return fault(CSRKeyOfAnother, "another host has the certificate of instance %[1]s. If this host belongs to a "+
			"newer Machine with the same address, delete both the Machine %[1]s and the newer one", f.instance.Name)
	}
	return nil
}

// machineIsNew applies the rules of OpenShift's approver: the Machine is new, has no Node, and has the requested
// addresses. The age of the Machine is computed from two times that the API server set.
func machineIsNew(f csrFacts) *csrFault {
	if f.instance.Machine == nil {
		return nil
	}
	if f.claim.HostID != contract.Digest(f.claim.Request.RawSubjectPublicKeyInfo) {
		return fault(CSRSubjectWrong, "the common name is not the digest of the key")
	}
	for _, name := range f.claim.SANs() {
		if !ContainsAddress(f.instance.Given, name) {
			return fault(CSRNameNotOfNode, "%s is no address of the Machine %s", shown(name), f.instance.Name)
		}
	}
	if f.Machine.NodeRef != "" {
		return fault(CSRMachineNotNew, "the Machine %[1]s has the Node %[2]s. If this host belongs to a newer "+
			"Machine with the same address, delete both the Machine %[1]s and the newer one", f.instance.Name,
			f.Machine.NodeRef)
	}
	if age := f.CSR.CreationTimestamp.Sub(f.Machine.CreatedAt); age < 0 || age > newMachine {
		return fault(CSRMachineNotNew, "the request was made %s after the Machine %s; at most %s are accepted", age,
			f.instance.Name, newMachine)
	}
	return nil
}
