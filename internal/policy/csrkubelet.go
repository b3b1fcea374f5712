package policy

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

func kubeletClientRules() csrRules {
	return csrRules{request: []csrRule{
		signerIs(certificatesv1.KubeAPIServerClientKubeletSignerName),
		subjectIs(contract.KubeletGroup),
		noNames,
		usagesAre(certificatesv1.UsageClientAuth),
		lifetimeWithin(maxKubeletLifetime, false),
		keyIsStrong,
		requestedByKubeletOrBootstrapper,
		keyIsHeld,
	}, cluster: []csrRule{
		staying,
		func(f csrFacts) *csrFault {
			if IsFirstKubeletRequest(f.CSR, f.BootstrapUser) {
				if broken := firstCertificateIsDue(f); broken != nil {
					return broken
				}
				return credentialIsOfThisJoin(f)
			}
			return nodeIsOurs(f)
		},
	}}
}

func kubeletServingRules() csrRules {
	return csrRules{request: []csrRule{
		signerIs(certificatesv1.KubeletServingSignerName),
		subjectIs(contract.KubeletGroup),
		namesAreOfNodes,
		usagesAre(certificatesv1.UsageServerAuth),
		lifetimeWithin(maxKubeletLifetime, false),
		keyIsStrong,
		func(f csrFacts) *csrFault {
			if !requestedByItself(f, contract.KubeletGroup) {
				return fault(CSRRequesterWrong, "only %s%s itself asks for its serving certificate",
					contract.KubeletUserPrefix, f.claim.NodeName)
			}
			return nil
		},
		keyIsHeld,
	}, cluster: []csrRule{
		staying,
		nodeIsOurs,
		namesAreOfThisNode,
	}}
}

func requestedByKubeletOrBootstrapper(f csrFacts) *csrFault {
	if !IsFirstKubeletRequest(f.CSR, f.BootstrapUser) && !requestedByItself(f, contract.KubeletGroup) {
		return fault(CSRRequesterWrong, "neither %s nor the node itself asks for this client certificate",
			f.BootstrapUser)
	}
	return nil
}

// requestedByItself reports whether the requester already has the requested identity, so that the request is a renewal.
// The API server sets the user name and groups of a request, so the requester can't forge them.
func requestedByItself(f csrFacts, group string) bool {
	return f.CSR.Spec.Username == f.claim.Request.Subject.CommonName && slices.Contains(f.CSR.Spec.Groups, group)
}

// firstCertificateIsDue requires that the instance is joining and that no working Node has this name.
func firstCertificateIsDue(f csrFacts) *csrFault {
	if broken := joining(f); broken != nil {
		return broken
	}
	if f.Node == nil {
		return nil
	}
	if broken := nodeIsOurs(f); broken != nil {
		return broken
	}
	if IsReady(f.Node) {
		return notYet(CSRNodeServing, "Node %s is Ready: it has a certificate", f.Node.Name)
	}
	return nil
}
