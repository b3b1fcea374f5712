package hns

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
)

// Results of calls on Windows: https://learn.microsoft.com/en-us/windows/win32/hcn/hcn-error-codes (names in
// winerror.h).
const (
	ok              uint32 = 0
	networkNotFound uint32 = 0x803B0001 // HCN_E_NETWORK_NOT_FOUND
	pointNotFound   uint32 = 0x803B0002 // HCN_E_ENDPOINT_NOT_FOUND
	policyNotFound  uint32 = 0x803B0008 // HCN_E_POLICY_NOT_FOUND
	balancerMissing uint32 = 0x80070490 // ERROR_NOT_FOUND
	invalidNetwork  uint32 = 0x803B000A // HCN_E_INVALID_NETWORK
	invalidPolicy   uint32 = 0x803B000D // HCN_E_INVALID_POLICY
	networkExists   uint32 = 0x803B0010 // HCN_E_NETWORK_ALREADY_EXISTS
	invalidAddress  uint32 = 0x803B002F // HCN_E_ADDR_INVALID_OR_RESERVED
	invalidJSON     uint32 = 0x803B001B // HCN_E_INVALID_JSON
	invalidSubnet   uint32 = 0x803B0032 // HCN_E_INVALID_SUBNET
	notImplemented  uint32 = 0x80004001 // E_NOTIMPL
	failed          uint32 = 0x80004005 // E_FAIL
)

// refusal is an error with a Windows error code.
type refusal struct {
	code uint32
	text string
}

func (r refusal) Error() string { return r.text }

// refused returns the HRESULT of a failed call, and the error as JSON.
func refused(err error) (uint32, string) {
	r := refusal{code: failed, text: err.Error()}
	errors.As(err, &r)
	_, text := encoded(object{"Success": false, "Error": err.Error(), "ErrorCode": r.code})
	return r.code, text
}

// Answer answers one message of the DLLs in lab/wine/native: the name of the function and its arguments, each
// terminated by a zero byte. The answer is the HRESULT of the function, little-endian, and a text.
func (s *Service) Answer(message []byte) []byte {
	words := strings.Split(strings.TrimSuffix(string(message), "\x00"), "\x00")
	s.mu.Lock()
	defer s.mu.Unlock()
	result, text := s.call(words[0], words[1:])
	return append(binary.LittleEndian.AppendUint32(nil, result), text...)
}

func (s *Service) call(function string, arguments []string) (result uint32, text string) {
	argument := func(i int) string {
		if i < len(arguments) {
			return arguments[i]
		}
		return ""
	}
	switch function {
	case "HNSCall":
		return ok, s.rest(argument(0), argument(1), argument(2))
	case "HcnEnumerateNetworks":
		return s.enumerateNetworks(argument(0))
	case "HcnEnumerateEndpoints":
		return s.enumerateEndpoints(argument(0))
	case "HcnOpenNetwork", "HcnQueryNetworkProperties":
		n, found := s.network(argument(0))
		if !found {
			return networkNotFound, ""
		}
		return encoded(newer(n))
	case "HcnCreateNetwork":
		return s.createNetwork(argument(1))
	case "HcnModifyNetwork":
		return s.modifyNetwork(argument(0), argument(1))
	case "HcnOpenEndpoint", "HcnQueryEndpointProperties":
		at, found := s.endpoint(argument(0))
		if !found {
			return pointNotFound, ""
		}
		return encoded(s.newerEndpoint(s.state.Endpoints[at]))
	case "HcnCreateEndpoint":
		return s.createEndpoint(argument(0), argument(1))
	case "HcnDeleteNetwork":
		return deleted(networkNotFound)(s.removeNetwork(argument(0)))
	case "HcnDeleteEndpoint":
		return deleted(pointNotFound)(s.removeEndpoint(argument(0)))
	}
	return s.callBalancer(function, argument)
}

// callBalancer answers calls about load balancers.
func (s *Service) callBalancer(function string, argument func(int) string) (result uint32, text string) {
	switch function {
	case "HcnEnumerateLoadBalancers":
		return s.enumerateBalancers(argument(0))
	case "HcnOpenLoadBalancer", "HcnQueryLoadBalancerProperties":
		at, found := s.balancer(argument(0))
		if !found {
			return balancerMissing, ""
		}
		return encoded(s.state.LoadBalancers[at])
	case "HcnCreateLoadBalancer":
		return s.createBalancer(argument(1))
	case "HcnDeleteLoadBalancer":
		return deleted(balancerMissing)(s.removeBalancer(argument(0)))
	}
	return notImplemented, ""
}

func deleted(missing uint32) func(found bool, err error) (uint32, string) {
	return func(found bool, err error) (uint32, string) {
		switch {
		case err != nil:
			return failed, ""
		case !found:
			return missing, ""
		}
		return ok, ""
	}
}

// filter parses the filter of a query of the newer interface. The filter contains the wanted values of fields.
func filter(query string) (map[string]string, error) {
	var outer struct{ Filter string }
	if err := json.Unmarshal([]byte(query), &outer); err != nil || outer.Filter == "" {
		return nil, err
	}
	wanted := map[string]string{}
	return wanted, json.Unmarshal([]byte(outer.Filter), &wanted)
}

// createNetwork creates a network and returns its ID. The ID is always new, because hcsshim lets HNS choose it.
func (s *Service) createNetwork(settings string) (uint32, string) {
	wanted, err := parseNewer([]byte(settings))
	if err != nil {
		return refused(err)
	}
	made, err := s.addNetwork(wanted)
	if err != nil {
		return refused(err)
	}
	return ok, made.ID
}

// createEndpoint creates an endpoint and returns its new ID.
func (s *Service) createEndpoint(network, settings string) (uint32, string) {
	wanted, err := parseNewerEndpoint([]byte(settings))
	if err != nil {
		return refused(err)
	}
	wanted.Network = network
	made, err := s.addEndpoint(wanted)
	if err != nil {
		return refused(err)
	}
	return ok, made.ID
}

// modifyNetwork adds policies to a network, or removes them.
func (s *Service) modifyNetwork(id, settings string) (uint32, string) {
	var wanted struct {
		ResourceType, RequestType string
		Settings                  struct{ Policies []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(settings), &wanted); err != nil {
		return refused(refusal{invalidJSON, "reading what to modify: " + err.Error()})
	}
	if wanted.ResourceType != "Policy" || wanted.RequestType != "Add" && wanted.RequestType != "Remove" {
		return refused(refusal{notImplemented, wanted.RequestType + " " + wanted.ResourceType + " is not played"})
	}
	if err := s.changePolicies(id, wanted.RequestType == "Add", wanted.Settings.Policies); err != nil {
		return refused(err)
	}
	return ok, ""
}

func (s *Service) enumerateNetworks(query string) (uint32, string) {
	wanted, err := filter(query)
	if err != nil {
		return failed, ""
	}
	ids := []string{}
	for _, n := range s.state.Networks {
		name, byName := wanted["Name"]
		id, byID := wanted["ID"]
		if (!byName || name == n.Name) && (!byID || sameID(id, n.ID)) {
			ids = append(ids, n.ID)
		}
	}
	return encoded(ids)
}

func (s *Service) enumerateEndpoints(query string) (uint32, string) {
	wanted, err := filter(query)
	if err != nil {
		return failed, ""
	}
	ids := []string{}
	for _, e := range s.state.Endpoints {
		name, byName := wanted["Name"]
		on, byNetwork := wanted["VirtualNetwork"]
		id, byID := wanted["ID"]
		if (!byName || name == e.Name) && (!byNetwork || sameID(on, e.Network)) && (!byID || sameID(id, e.ID)) {
			ids = append(ids, e.ID)
		}
	}
	return encoded(ids)
}

func encoded(object any) (uint32, string) {
	content, err := json.Marshal(object)
	if err != nil {
		return failed, ""
	}
	return ok, string(content)
}
