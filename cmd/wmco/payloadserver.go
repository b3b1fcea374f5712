package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/publish"
	"github.com/windows-nodes/wmco/internal/payloadserver"
)

// Environment variables with addresses of this pod that nodes can reach. The operator's Deployment sets podAddresses to
// all addresses of the pod, and podAddress to the address of the IP family that the cluster prefers. kubelet sets
// serviceAddress to the address of the Service windows-payload, if the Service is older than the pod. The operator
// needs no rights to read these variables.
const (
	podAddresses   = "POD_IPS"
	podAddress     = "POD_IP"
	serviceAddress = "WINDOWS_PAYLOAD_SERVICE_HOST"
)

// addPayloadServer adds to the manager a server that sends the payload to daemons. The server runs in the leader only,
// because only the leader publishes its address and its certificate. If two operators ran a server, daemons could get
// the address of one server and the certificate of the other.
func addPayloadServer(mgr ctrl.Manager, o options, clients kubernetes.Interface,
	blobs payloadserver.Blobs) (publish.PayloadSource, error) {
	if o.payloadBind == "0" {
		return publish.PayloadSource{}, nil
	}
	bind, err := netip.ParseAddrPort(o.payloadBind)
	if err != nil {
		return publish.PayloadSource{}, fmt.Errorf("reading --payload-bind-address: %w", err)
	}
	slots, err := advertised(o, bind.Port())
	if err != nil {
		return publish.PayloadSource{}, fmt.Errorf("reading --payload-advertise: %w", err)
	}
	if len(slots) == 0 {
		mgr.GetLogger().Info("daemons can't fetch the payload, because nothing says how this pod is reached; hosts "+
			"are given it over SSH",
			"flag", "--payload-advertise", "environment", []string{podAddresses, podAddress, serviceAddress})
		return publish.PayloadSource{}, nil
	}
	// Every cluster publishes the CAs of its client certificates in this ConfigMap, so that servers can verify clients:
	// https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/.
	clientCAs, err := dynamiccertificates.NewDynamicCAFromConfigMapController("payload", metav1.NamespaceSystem,
		"extension-apiserver-authentication", "client-ca-file", clients)
	if err != nil {
		return publish.PayloadSource{}, fmt.Errorf("watching the CAs of daemons: %w", err)
	}
	nodes := payloadserver.Nodes{Reader: mgr.GetClient(), Namespace: o.namespace}
	options := payloadserver.Options{
		Blobs: blobs, Clients: clientCAs.VerifyOptions, Registry: metrics.Registry, Known: nodes.Known,
		Guests: nodes.Guests,
	}
	source := publish.PayloadSource{}
	for _, p := range slots {
		source.URLs = append(source.URLs, "https://"+p.String())
		if ip := net.ParseIP(p.host); ip != nil {
			options.Addresses = append(options.Addresses, ip)
		} else {
			options.Names = append(options.Names, p.host)
		}
	}
	d, err := payloadserver.New(options)
	if err != nil {
		return publish.PayloadSource{}, err
	}
	source.CA = d.Certificate()
	serve := func(ctx context.Context) error {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", bind.String())
		if err != nil {
			return fmt.Errorf("listening for daemons: %w", err)
		}
		go clientCAs.Run(ctx, 1)
		return d.Serve(logr.NewContext(ctx, mgr.GetLogger().WithName("payload server")), listener)
	}
	if err = mgr.Add(manager.RunnableFunc(serve)); err != nil {
		return publish.PayloadSource{}, fmt.Errorf("adding the payload server: %w", err)
	}
	return source, nil
}

// place is an address of the payload server that daemons can reach.
type place struct {
	host string
	port uint16
}

func (p place) String() string { return net.JoinHostPort(p.host, strconv.Itoa(int(p.port))) }

// The function `advertised` returns the addresses of the payload server, in the order in which daemons try them. By
// default, these are this pod's addresses and then the Service's address. The flag --payload-advertise replaces them.
func advertised(o options, port uint16) (all []place, err error) {
	texts := strings.FieldsFunc(o.payloadAdvertise, func(r rune) bool { return r == ',' || r == ' ' })
	if len(texts) == 0 {
		for _, name := range []string{podAddresses, podAddress, serviceAddress} {
			text := valueOr(o.environment, name, "")
			if text == "" {
				continue
			}
			ip, err := nodesFamily(text)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", name, err)
			}
			at := place{host: ip.String(), port: port}
			if name == serviceAddress {
				at.port = contract.PayloadServerPort // regardless of the port that the server listens on
			}
			all = append(all, at)
		}
	}
	for _, text := range texts {
		at, err := parsePlace(text, port)
		if err != nil {
			return nil, err
		}
		all = append(all, at)
	}
	return slices.Compact(all), nil
}

// nodesFamily returns the first IPv4 address in a comma-separated list, because every Windows node has an IPv4 address.
// If the list contains only IPv6 addresses, the function returns the first of them.
func nodesFamily(list string) (first netip.Addr, err error) {
	for text := range strings.SplitSeq(list, ",") {
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.Is4() {
			return ip, err
		}
		if !first.IsValid() {
			first = ip
		}
	}
	return first, nil
}

// parsePlace parses a host name or an IP address, with or without a port. The parameter `port` is the default port.
func parsePlace(text string, port uint16) (place, error) {
	if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return place{host: ip.String(), port: port}, nil
	}
	if !strings.Contains(text, ":") {
		return place{host: text, port: port}, nil
	}
	host, number, err := net.SplitHostPort(text)
	if err != nil {
		return place{}, err
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 || host == "" {
		return place{}, fmt.Errorf("%q is no host:port", text)
	}
	return place{host: host, port: uint16(n)}, nil
}
