package policy

import (
	"errors"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

func daemonRules() csrRules {
	return csrRules{request: []csrRule{
		signerIs(certificatesv1.KubeAPIServerClientSignerName),
		subjectIs(contract.DaemonGroup),
		noNames,
		usagesAre(certificatesv1.UsageClientAuth),
		lifetimeWithin(maxDaemonLifetime, true),
		keyIsStrong,
		requestedByDaemonOrOperator,
		keyIsHeld,
	}, cluster: []csrRule{
		staying,
		func(f csrFacts) *csrFault {
			if f.CSR.Spec.Username == f.OperatorUser {
				return firstDaemonCertificateIsDue(f)
			}
			return nodeIsOurs(f)
		},
	}}
}

// CheckDaemonRequest checks a host's request for its daemon's certificate, before the operator submits this request as
// its own. The request must ask for exactly the identity of this node's daemon.
func CheckDaemonRequest(text []byte, node string) error {
	request, err := ParseCSR(text)
	if err != nil {
		return err
	}
	name, found := strings.CutPrefix(request.Subject.CommonName, contract.DaemonUserPrefix)
	if !found || name != node {
		return fmt.Errorf("the request is for %s, not for the daemon of node %s", shown(request.Subject.CommonName),
			node)
	}
	f := csrFacts{claim: CSRClaim{Kind: CSRDaemon, NodeName: name, Request: request}}
	for _, rule := range []csrRule{subjectIs(contract.DaemonGroup), noNames, keyIsStrong, keyIsHeld} {
		if broken := rule(f); broken != nil {
			return errors.New(broken.message)
		}
	}
	return nil
}

func submittedByOperator(in CSRInput) bool {
	return in.OperatorUser != "" && in.CSR.Spec.Username == in.OperatorUser && CSRPending(in.CSR)
}

// requestedByDaemonOrOperator requires that the daemon or the operator sent the request. The daemon renews its own
// certificate. The operator submits the first request, for a host that it is connected to. The operator must write the
// instance into the request, so that a mix-up of two hosts is detected.
func requestedByDaemonOrOperator(f csrFacts) *csrFault {
	switch {
	case f.OperatorUser != "" && f.CSR.Spec.Username == f.OperatorUser:
		if named := f.CSR.Annotations[contract.InstanceAnnotation]; named != f.instance.reference() {
			return fault(CSRRequesterWrong, "the request was made for instance %s, but node %s is instance %s",
				shown(named), f.claim.NodeName, f.instance.reference())
		}
		return nil
	case requestedByItself(f, contract.DaemonGroup):
		return nil
	}
	return fault(CSRRequesterWrong, "neither the operator nor the daemon of node %s asks for this certificate",
		f.claim.NodeName)
}

// firstDaemonCertificateIsDue requires that the instance is joining. The Node may be missing, or may not be adopted
// yet. But it must not belong to another host.
func firstDaemonCertificateIsDue(f csrFacts) *csrFault {
	if broken := joining(f); broken != nil {
		return broken
	}
	if f.Node == nil {
		return nil
	}
	broken := nodeIsOurs(f)
	if broken == nil || broken.reason != CSRNodeUnadopted {
		return broken
	}
	if !nodeIsWindows(f.Node) {
		return fault(CSRNodeForeign, "Node %s exists and does not run Windows", f.Node.Name)
	}
	return nil
}
