package policy

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// hostRules are the rules for the certificate of a host that joins by itself. The first one is requested with the token
// of the command. The host renews it by itself.
func hostRules() csrRules {
	return csrRules{request: []csrRule{
		signerIs(certificatesv1.KubeAPIServerClientSignerName),
		subjectIs(contract.HostGroup),
		noNames,
		usagesAre(certificatesv1.UsageClientAuth),
		lifetimeWithin(maxDaemonLifetime, true),
		keyIsStrong,
		requestedByHostOrToken,
		keyIsHeld,
	}, cluster: []csrRule{
		staying,
		func(f csrFacts) *csrFault {
			if IsFirstKubeletRequest(f.CSR, f.BootstrapUser) {
				return tokenIsOfThisCommand(f)
			}
			return nil
		},
	}}
}

func requestedByHostOrToken(f csrFacts) *csrFault {
	if IsFirstKubeletRequest(f.CSR, f.BootstrapUser) || requestedByItself(f, contract.HostGroup) {
		return nil
	}
	return fault(CSRRequesterWrong, "neither the host of instance %s nor the token of its command requests this "+
		"certificate", f.instance.Name)
}

// tokenIsOfThisCommand requires the token of this instance's present command. The token is valid for one key, so a
// process that reads the command later can't use it.
func tokenIsOfThisCommand(f csrFacts) *csrFault {
	if f.JoinCredential == "" {
		return notYet(CSRCredentialUnknown, "no command is published for the host of instance %s", f.instance.Name)
	}
	if CredentialOf(f.CSR) != f.JoinCredential {
		return fault(CSRCredentialForeign, "the token does not belong to the published command of instance %s",
			f.instance.Name)
	}
	if f.JoinKey != "" && f.JoinKey != contract.Digest(f.claim.Request.RawSubjectPublicKeyInfo) {
		return fault(CSRKeyOfAnother, "the token of instance %s was used on another host", f.instance.Name)
	}
	return nil
}
