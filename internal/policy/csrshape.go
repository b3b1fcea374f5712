package policy

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	// maxKubeletLifetime is the default of kube-controller-manager's flag --cluster-signing-duration, which limits
	// lifetimes on most clusters. kubelet has no reason to request a longer lifetime. If kubelet requests no lifetime,
	// the signer uses its default.
	maxKubeletLifetime = 365 * 24 * time.Hour
	// maxDaemonLifetime is twice the lifetime that daemons request, plus some days. So a later release can double the
	// requested lifetime without an outage.
	maxDaemonLifetime = 31 * 24 * time.Hour

	minRSABits = 2048
	// maxRSABits limits how long the verification of a hostile request takes.
	maxRSABits = 8192
)

// subjectIs requires a subject with exactly one common name, the given organization, and nothing else. The signer would
// sign other attributes of the subject without checking them.
func subjectIs(organization string) csrRule {
	return func(f csrFacts) *csrFault {
		subject := f.claim.Request.Subject
		switch {
		case f.claim.Kind != CSRHost && !IsNodeName(f.claim.NodeName):
			return fault(CSRSubjectWrong, "%s is no node name", shown(f.claim.NodeName))
		case !slices.Equal(subject.Organization, []string{organization}):
			return fault(CSRSubjectWrong, "the organization is not exactly %s", organization)
		case len(subject.Names) != 2:
			return fault(CSRSubjectWrong, "the subject has more than a common name and an organization")
		}
		return nil
	}
}

// signerIs requires the given signer. The signer kubernetes.io/kube-apiserver-client must not be used for nodes: it
// signs any subject, even a kubelet's, without the checks of the signer for kubelets.
func signerIs(signer string) csrRule {
	return func(f csrFacts) *csrFault {
		if f.CSR.Spec.SignerName != signer {
			return fault(CSRSignerWrong, "%s certificates come from the signer %s, not %s", f.claim.Kind, signer,
				f.CSR.Spec.SignerName)
		}
		return nil
	}
}

// usagesAre requires the usage "digital signature" and the given purpose. RSA keys may also have the usage "key
// encipherment", because TLS 1.2 can use them to encrypt keys.
func usagesAre(purpose certificatesv1.KeyUsage) csrRule {
	return func(f csrFacts) *csrFault {
		want := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, purpose}
		usages := slices.Clone(f.CSR.Spec.Usages)
		if f.claim.Request.PublicKeyAlgorithm == x509.RSA &&
			slices.Contains(usages, certificatesv1.UsageKeyEncipherment) {
			want = append(want, certificatesv1.UsageKeyEncipherment)
		}
		slices.Sort(usages)
		slices.Sort(want)
		if !slices.Equal(usages, want) {
			return fault(CSRUsagesWrong, "the usages are not exactly digital signature and %s", purpose)
		}
		return nil
	}
}

func noNames(f csrFacts) *csrFault {
	if sans := sanTexts(f.claim.Request); len(sans) > 0 {
		return fault(CSRNamesForbidden, "a client certificate has no alternative name such as %s", shown(sans[0]))
	}
	if len(f.claim.Request.Extensions) > 0 {
		return fault(CSRExtensionForbidden, "the request has the extension %s", f.claim.Request.Extensions[0].Id)
	}
	return nil
}

// lifetimeWithin forbids lifetimes longer than limit. If required is true, it also forbids requests without a lifetime.
func lifetimeWithin(limit time.Duration, required bool) csrRule {
	return func(f csrFacts) *csrFault {
		seconds := f.CSR.Spec.ExpirationSeconds
		switch {
		case seconds == nil && required:
			return fault(CSRLifetimeMissing, "expirationSeconds is not set; at most %d are granted",
				int(limit.Seconds()))
		case seconds == nil:
			return nil
		case *seconds <= 0 || time.Duration(*seconds)*time.Second > limit:
			return fault(CSRLifetimeLong, "expirationSeconds is %d; at most %d are granted", *seconds,
				int(limit.Seconds()))
		}
		return nil
	}
}

// keyIsStrong requires a key and a digest that are secure until the certificate expires.
func keyIsStrong(f csrFacts) *csrFault {
	switch key := f.claim.Request.PublicKey.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return fault(CSRKeyWeak, "the RSA key has %d bits; %d to %d are accepted", bits, minRSABits, maxRSABits)
		}
	case *ecdsa.PublicKey:
		if !slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, key.Curve) {
			return fault(CSRKeyWeak, "the curve %s is not accepted", key.Curve.Params().Name)
		}
	case ed25519.PublicKey:
	default:
		return fault(CSRKeyWeak, "a key of this kind is not accepted")
	}
	if !slices.Contains(strongSignatures(), f.claim.Request.SignatureAlgorithm) {
		return fault(CSRKeyWeak, "the signature algorithm %s is not accepted", f.claim.Request.SignatureAlgorithm)
	}
	return nil
}

// strongSignatures returns the accepted signature algorithms. The parser itself also accepts SHA-1 in requests.
func strongSignatures() []x509.SignatureAlgorithm {
	return []x509.SignatureAlgorithm{
		x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA,
		x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS,
		x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512,
		x509.PureEd25519,
	}
}

// keyIsHeld requires a valid signature, which shows that the requester has the private key.
func keyIsHeld(f csrFacts) *csrFault {
	if err := f.claim.Request.CheckSignature(); err != nil {
		return fault(CSRSignatureWrong, "the request is not signed with its own key")
	}
	return nil
}

// isSubjectAltName reports whether an extension contains alternative names (RFC 5280, 4.2.1.6).
func isSubjectAltName(extension pkix.Extension) bool {
	return extension.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17})
}
