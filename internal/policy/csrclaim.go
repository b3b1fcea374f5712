package policy

import (
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// CSRKind is the kind of certificate that a request is for.
type CSRKind string

// Kinds of certificates that Windows hosts request.
const (
	CSRKubeletClient  CSRKind = "kubelet client"
	CSRKubeletServing CSRKind = "kubelet serving"
	CSRDaemon         CSRKind = "daemon"
	// CSRHost is the certificate of a host that joins by itself.
	CSRHost CSRKind = "host"
)

// CSRClaim is the identity that a request asks for.
type CSRClaim struct {
	Kind CSRKind
	// NodeName is the requested node identity, exactly as in the common name. It is unverified.
	NodeName string
	// HostID is the requested, unverified identity of a host that joins by itself. With a HostID, NodeName is empty.
	HostID string
	// Request is the parsed request. Its signature is unverified.
	Request *x509.CertificateRequest
}

// SANs returns the requested DNS names and IP addresses. The IP addresses are in canonical form.
func (c CSRClaim) SANs() []string { return append(dnsNames(c.Request), ipTexts(c.Request)...) }

// ClaimOf returns the identity that a request asks for. It returns false if the request is already decided, is for
// another signer, or is for no node. It must be fast, because a cluster may have thousands of other requests.
func ClaimOf(csr *certificatesv1.CertificateSigningRequest) (CSRClaim, bool) {
	if !CSRPending(csr) {
		return CSRClaim{}, false
	}
	var kubelet CSRKind
	switch csr.Spec.SignerName {
	case certificatesv1.KubeletServingSignerName:
		kubelet = CSRKubeletServing
	case certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeAPIServerClientSignerName:
		kubelet = CSRKubeletClient
	default:
		return CSRClaim{}, false
	}
	request, err := ParseCSR(csr.Spec.Request)
	if err != nil {
		return CSRClaim{}, false
	}
	name := request.Subject.CommonName
	if node, found := strings.CutPrefix(name, contract.KubeletUserPrefix); found && node != "" {
		return CSRClaim{Kind: kubelet, NodeName: node, Request: request}, true
	}
	if node, found := strings.CutPrefix(name, contract.DaemonUserPrefix); found && node != "" {
		return CSRClaim{Kind: CSRDaemon, NodeName: node, Request: request}, true
	}
	if id, found := strings.CutPrefix(name, contract.HostUserPrefix); found && id != "" {
		return CSRClaim{Kind: CSRHost, HostID: id, Request: request}, true
	}
	return CSRClaim{}, false
}

// IsOf reports whether a claim is for the host of an instance. In the claim of a Machine's host, the common name
// doesn't contain the Machine's name, so the addresses show which Machine the host belongs to.
func (c CSRClaim) IsOf(i CSRInstance) bool {
	if c.Kind != CSRHost {
		return c.NodeName == i.NodeName
	}
	return c.HostID == i.HostID || i.Machine != nil &&
		slices.ContainsFunc(c.SANs(), func(name string) bool { return ContainsAddress(i.Given, name) })
}

func (c CSRClaim) subject() string {
	if c.Kind == CSRHost {
		return "host " + shown(c.HostID)
	}
	return "node " + shown(c.NodeName)
}

// CSRPending reports whether a request is undecided.
func CSRPending(csr *certificatesv1.CertificateSigningRequest) bool {
	return csr.DeletionTimestamp.IsZero() && len(csr.Status.Conditions) == 0 && len(csr.Status.Certificate) == 0
}

func dnsNames(request *x509.CertificateRequest) []string {
	return append([]string{}, request.DNSNames...)
}

// Addresses returns the requested IP addresses. IPv4-mapped IPv6 addresses are converted to IPv4.
func (c CSRClaim) Addresses() []netip.Addr { return addresses(c.Request) }

func addresses(request *x509.CertificateRequest) []netip.Addr {
	var all []netip.Addr
	for _, ip := range request.IPAddresses {
		address, _ := netip.AddrFromSlice(ip)
		all = append(all, address.Unmap())
	}
	return all
}

func ipTexts(request *x509.CertificateRequest) []string {
	var texts []string
	for _, address := range addresses(request) {
		texts = append(texts, address.String())
	}
	return texts
}

// sanTexts returns the alternative names of every kind that the standard parser knows.
func sanTexts(request *x509.CertificateRequest) []string {
	texts := append(dnsNames(request), ipTexts(request)...)
	texts = append(texts, request.EmailAddresses...)
	for _, uri := range request.URIs {
		texts = append(texts, uri.String())
	}
	return texts
}
