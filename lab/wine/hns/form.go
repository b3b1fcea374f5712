package hns

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// The older interface (vmcompute.dll) and the newer interface (computenetwork.dll) represent objects in two different
// forms of JSON. Microsoft defines both forms, and hcsshim uses both.

type object map[string]any

// nonPersistent is the flag of a network that doesn't survive a boot.
const nonPersistent = 8

// The function newer returns a network in the form of computenetwork.dll.
func newer(n network) object {
	subnet := object{"IpAddressPrefix": n.Subnet.String(), "Routes": []object{
		{"NextHop": n.Subnet.Addr().Next().String(), "DestinationPrefix": "0.0.0.0/0"}}}
	if n.VNI != 0 {
		subnet["Policies"] = []object{{"Type": "VSID", "Settings": object{"IsolationId": n.VNI}}}
	}
	policies := []any{}
	if n.overlay() {
		policies = append(policies,
			object{"Type": "ProviderAddress", "Settings": object{"ProviderAddress": n.ManagementIP.String()}},
			object{"Type": "DrMacAddress", "Settings": object{"Address": n.RouterMAC}})
	}
	for _, policy := range n.Policies {
		policies = append(policies, policy)
	}
	flags := 0
	if n.Fleeting {
		flags = nonPersistent
	}
	return object{
		"ID": n.ID, "Name": n.Name, "Type": n.Type, "Flags": flags, "Policies": policies,
		"SchemaVersion": object{"Major": 2, "Minor": 0},
		"Ipams":         []object{{"Type": "Static", "Subnets": []object{subnet}}},
	}
}

// parseNewer parses a new network in the form of computenetwork.dll. It accepts and ignores policies of the network
// itself, such as the name of its card.
func parseNewer(settings []byte) (network, error) {
	var wanted struct {
		Name, Type string
		Flags      uint32
		Ipams      []struct {
			Subnets []struct {
				IPAddressPrefix netip.Prefix
				Policies        []struct {
					Type     string
					Settings struct{ IsolationID uint32 }
				}
			}
		}
	}
	if err := json.Unmarshal(settings, &wanted); err != nil {
		return network{}, refusal{invalidJSON, "reading the network: " + err.Error()}
	}
	if len(wanted.Ipams) != 1 || len(wanted.Ipams[0].Subnets) != 1 {
		return network{}, refusal{invalidNetwork, "network " + wanted.Name + " has not one subnet, as is played"}
	}
	subnet := wanted.Ipams[0].Subnets[0]
	n := network{Name: wanted.Name, Type: wanted.Type, Subnet: subnet.IPAddressPrefix,
		Fleeting: wanted.Flags&nonPersistent != 0}
	for _, policy := range subnet.Policies {
		if policy.Type == "VSID" {
			n.Tagged, n.VNI = true, policy.Settings.IsolationID
		}
	}
	return n, nil
}

func (s *Service) newerEndpoint(e endpoint) object {
	on, _ := s.network(e.Network)
	return object{
		"ID": e.ID, "Name": e.Name, "HostComputeNetwork": e.Network, "SchemaVersion": object{"Major": 2, "Minor": 0},
		"MacAddress": e.MAC, "Flags": e.Flags, "Policies": e.Policies,
		"IpConfigurations": []object{{"IpAddress": e.Address.String(), "PrefixLength": on.Subnet.Bits()}},
	}
}

// parseNewerEndpoint parses a new endpoint in the form of computenetwork.dll.
func parseNewerEndpoint(settings []byte) (endpoint, error) {
	var wanted struct {
		Name, MacAddress string
		Flags            uint32
		Policies         []json.RawMessage
		IPConfigurations []struct{ IPAddress netip.Addr }
	}
	if err := json.Unmarshal(settings, &wanted); err != nil {
		return endpoint{}, refusal{invalidJSON, "reading the endpoint: " + err.Error()}
	}
	e := endpoint{Name: wanted.Name, MAC: wanted.MacAddress, Flags: wanted.Flags, Policies: wanted.Policies}
	if len(wanted.IPConfigurations) > 0 {
		e.Address = wanted.IPConfigurations[0].IPAddress
	}
	return e, nil
}

// The function older returns a network in the form of vmcompute.dll.
func older(n network) object {
	subnet := object{"AddressPrefix": n.Subnet.String(), "GatewayAddress": n.Subnet.Addr().Next().String()}
	if n.VNI != 0 {
		subnet["Policies"] = []object{{"Type": "VSID", "VSID": n.VNI}}
	}
	return object{
		"ID": n.ID, "Name": n.Name, "Type": n.Type, "ManagementIP": n.ManagementIP.String(),
		"Subnets": []object{subnet},
	}
}

func (s *Service) olderEndpoint(e endpoint) object {
	on, _ := s.network(e.Network)
	return object{
		"ID": e.ID, "Name": e.Name, "VirtualNetwork": e.Network, "VirtualNetworkName": on.Name,
		"IPAddress":    e.Address.String(),
		"PrefixLength": on.Subnet.Bits(), "GatewayAddress": on.Subnet.Addr().Next().String(),
	}
}

// The method rest answers a call of the older interface. If the call fails, the answer contains the error.
func (s *Service) rest(method, path, request string) string {
	output, err := s.serve(method, strings.Split(strings.Trim(path, "/"), "/"), []byte(request))
	if err != nil {
		_, text := refused(err)
		return text
	}
	answer := object{"Success": true}
	if output != nil {
		answer["Output"] = output
	}
	_, text := encoded(answer)
	return text
}

func (s *Service) serve(method string, path []string, request []byte) (any, error) {
	switch {
	case len(path) == 1:
		return s.serveAll(method+" "+path[0], request)
	case method == "GET" && strings.Join(path, "/") == "globals/version":
		// The version of HNS in Windows 10.0.19041: https://github.com/microsoft/hcsshim/pull/1003.
		return object{"Major": 11, "Minor": 10}, nil
	case len(path) == 2 && method == "DELETE" && path[0] == "networks":
		return none(s.removeNetwork(path[1]))
	case len(path) == 2 && method == "DELETE" && path[0] == "endpoints":
		return none(s.removeEndpoint(path[1]))
	case len(path) == 3 && method == "POST" && path[0] == "endpoints" && path[2] == "attach":
		return s.attach(path[1])
	}
	return nil, fmt.Errorf("%s /%s is not simulated", method, strings.Join(path, "/"))
}

// serveAll answers calls that name no object.
func (s *Service) serveAll(call string, request []byte) (any, error) {
	all := []object{}
	switch call {
	case "GET networks":
		for _, n := range s.state.Networks {
			all = append(all, older(n))
		}
		return all, nil
	case "GET endpoints":
		for _, e := range s.state.Endpoints {
			all = append(all, s.olderEndpoint(e))
		}
		return all, nil
	case "GET policylists":
		return all, nil // kube-proxy accepts any answer; it creates load balancers through the newer interface
	case "POST networks":
		return s.postNetwork(request)
	case "POST endpoints":
		return s.postEndpoint(request)
	}
	return nil, fmt.Errorf("%s is not simulated", call)
}

func none(found bool, err error) (any, error) {
	if err == nil && !found {
		err = fmt.Errorf("element not found")
	}
	return nil, err
}

func (s *Service) postNetwork(request []byte) (any, error) {
	var wanted struct {
		Name, Type string
		Subnets    []struct {
			AddressPrefix netip.Prefix
			Policies      []struct {
				Type string
				VSID uint32
			}
		}
	}
	if err := json.Unmarshal(request, &wanted); err != nil {
		return nil, fmt.Errorf("reading the network: %w", err)
	}
	if len(wanted.Subnets) != 1 {
		return nil, fmt.Errorf("network %s has %d subnets, but only one is simulated", wanted.Name, len(wanted.Subnets))
	}
	n := network{Name: wanted.Name, Type: wanted.Type, Subnet: wanted.Subnets[0].AddressPrefix}
	for _, policy := range wanted.Subnets[0].Policies {
		if policy.Type == "VSID" {
			n.Tagged, n.VNI = true, policy.VSID
		}
	}
	made, err := s.addNetwork(n)
	return older(made), err
}

func (s *Service) postEndpoint(request []byte) (any, error) {
	var wanted struct {
		Name, VirtualNetwork string
		IPAddress            netip.Addr
	}
	if err := json.Unmarshal(request, &wanted); err != nil {
		return nil, fmt.Errorf("reading the endpoint: %w", err)
	}
	made, err := s.addEndpoint(endpoint{Name: wanted.Name, Network: wanted.VirtualNetwork, Address: wanted.IPAddress})
	return s.olderEndpoint(made), err
}

// attach only records the call. Real HNS assigns the address to a network card of the host, which needs a right that
// programs under Wine lack.
func (s *Service) attach(id string) (any, error) {
	at, found := s.endpoint(id)
	if !found {
		return nil, fmt.Errorf("element not found")
	}
	s.state.Endpoints[at].Attached = true
	return object{"Success": true}, s.save()
}
