package policy

import (
	"cmp"
	"encoding/asn1"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Tags of the kinds of alternative names that kubelets use (RFC 5280, 4.2.1.6). The standard parser skips kinds that it
// doesn't know, so the tags are checked separately.
const (
	sanTagDNS = 2
	sanTagIP  = 7
)

// namesAreOfNodes applies the rules for names that don't depend on the node: at least one name, only DNS names and IP
// addresses, and no name of a Service or of localhost.
func namesAreOfNodes(f csrFacts) *csrFault {
	request := f.claim.Request
	for _, extension := range request.Extensions {
		if !isSubjectAltName(extension) {
			return fault(CSRExtensionForbidden, "the request has the extension %s", extension.Id)
		}
		if !onlyNamesAndAddresses(extension.Value) {
			return fault(CSRNamesForbidden, "the request has alternative names other than DNS names and IP addresses")
		}
	}
	if len(request.DNSNames)+len(request.IPAddresses) == 0 {
		return fault(CSRNamesMissing, "a serving certificate needs a name or address")
	}
	for _, name := range dnsNames(request) {
		lower := strings.ToLower(name)
		if !IsNodeName(lower) || isServiceName(lower) || slices.Contains(f.ReservedNames, lower) {
			return fault(CSRNameNotOfNode, "%s can't be a node's name", shown(name))
		}
	}
	for _, text := range ipTexts(request) {
		address, err := netip.ParseAddr(text)
		if err != nil || !isHostAddress(address, f) {
			return fault(CSRNameNotOfNode, "%s can't be a node's address", shown(text))
		}
	}
	return nil
}

func onlyNamesAndAddresses(value []byte) bool {
	var names []asn1.RawValue
	rest, err := asn1.Unmarshal(value, &names)
	if err != nil || len(rest) > 0 {
		return false
	}
	return !slices.ContainsFunc(names, func(n asn1.RawValue) bool {
		return n.Class != asn1.ClassContextSpecific || n.Tag != sanTagDNS && n.Tag != sanTagIP
	})
}

var numericLabel = regexp.MustCompile(`(^|\.)([0-9]+|0x[0-9a-f]*)$`)

// IsNodeName reports whether a node can have this name, which must be in lower case. A name whose last label is a
// number is not allowed, because clients parse it as an IPv4 address
// (https://url.spec.whatwg.org/#ends-in-a-number-checker). Examples are 10.0.0.1, 127.1 and 0x7f000001.
func IsNodeName(name string) bool {
	return len(validation.IsDNS1123Subdomain(name)) == 0 && !numericLabel.MatchString(name)
}

// isServiceName reports whether clients use a name for something other than a node. Without this check, a kubelet could
// get a certificate for such a name, because it writes the names in its Node's status itself.
func isServiceName(name string) bool {
	labels := strings.Split(name, ".")
	switch labels[len(labels)-1] {
	case "localhost", "svc":
		return true
	}
	return name == "kubernetes" || name == "kubernetes.default" || len(labels) > 2 && labels[2] == "svc"
}

// isHostAddress reports whether a node can have this address. A node can't have a loopback address, unless the operator
// itself reaches the host at this address, as in a lab on one machine.
func isHostAddress(address netip.Addr, f csrFacts) bool {
	if f.ServiceNetwork.Contains(address) ||
		slices.ContainsFunc(f.Reserved, func(p netip.Prefix) bool { return p.Contains(address) }) {
		return false
	}
	return address.IsGlobalUnicast() || address.IsLoopback() && slices.Contains(f.instance.Addresses, address.String())
}

// namesAreOfThisNode requires that each name and address belongs to the Node or its instance, and to no other owner.
func namesAreOfThisNode(f csrFacts) *csrFault {
	known := addressesOf(f)
	for _, name := range f.claim.SANs() {
		if !known[name] && f.reported(name) {
			return fault(CSRNameNotOfNode, "only the kubelet of Node %s reports %s, which may belong to another "+
				"machine; if it belongs to the host, add it to spec.addresses of the WindowsInstance %s", f.Node.Name,
				shown(name), f.instance.Name)
		}
		if !known[name] {
			return fault(CSRNameNotOfNode, "%s is not among the addresses of Node %s or instance %s", shown(name),
				f.Node.Name, f.instance.Name)
		}
		if holder := f.holder(name); holder != "" {
			return fault(CSRNameNotOfNode, "%s is also an address of %s%s", shown(name), holder, f.cure(name))
		}
	}
	return nil
}

// cure returns how to fix the conflict with another owner of a name or address. It returns "" for an owner in
// Elsewhere, because nothing in this instance overrides that owner.
func (f csrFacts) cure(name string) string {
	if f.Elsewhere[name] != "" {
		return ""
	}
	return "; if it is the host's, add it to spec.addresses of the WindowsInstance " + f.instance.Name
}

// holder returns another owner of a name or address, or "". It ignores an owner whose claim to the name has weaker
// evidence than the claim of this instance.
func (f csrFacts) holder(name string) string {
	holder := f.Elsewhere[name]
	if f.given(name) {
		return holder
	}
	holder = cmp.Or(holder, f.Found[name])
	if AddressText(f.instance.Reached) == AddressText(name) {
		return holder
	}
	holder = cmp.Or(holder, f.ReportedElsewhere[name])
	if f.instance.Reached == "" && ContainsAddress(f.instance.Addresses, name) {
		return holder
	}
	return cmp.Or(holder, f.Listed[name])
}

func (f csrFacts) reported(name string) bool {
	return slices.ContainsFunc(f.Node.Status.Addresses,
		func(a corev1.NodeAddress) bool { return AddressText(a.Address) == AddressText(name) })
}

// The method `given` reports whether the user or the cloud, not the host, assigned a name or address to this instance.
func (f csrFacts) given(name string) bool {
	return name == f.Node.Name || ContainsAddress(f.instance.Given, name)
}

// ContainsAddress reports whether a list contains a name or address, regardless of its spelling.
func ContainsAddress(all []string, address string) bool {
	return slices.ContainsFunc(all, func(a string) bool { return AddressText(a) == AddressText(address) })
}

// addressesOf returns the names and addresses that a serving certificate of the Node may contain. A kubelet can write
// any address into its Node's status. From this status, the operator accepts only two kinds: the node's name without
// its domain, and private addresses, which identify a host only within its network. Public addresses and names in a
// domain must come from the user or the cloud.
func addressesOf(f csrFacts) map[string]bool {
	known := map[string]bool{f.Node.Name: true}
	for _, address := range f.instance.Addresses {
		// Accept both spellings: kubelet uses the cloud's spelling of a name, which may contain capital letters.
		known[AddressText(address)], known[address] = true, true
	}
	for _, address := range f.Node.Status.Addresses {
		text := AddressText(address.Address)
		if ip, err := netip.ParseAddr(text); err == nil {
			known[text] = known[text] || ip.IsPrivate()
		} else {
			known[text] = known[text] || strings.HasPrefix(f.Node.Name, text+".")
		}
	}
	return known
}

// AddressText returns the canonical form of an IP address or DNS name, for comparisons.
func AddressText(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(address)
}
