package hns

import (
	"encoding/binary"
	"encoding/json"
	"strings"
)

// Results of calls, as Windows has them:
// https://learn.microsoft.com/en-us/windows/win32/hcn/hcn-error-codes (names in winerror.h).
const (
	ok              uint32 = 0
	networkNotFound uint32 = 0x803B0001 // HCN_E_NETWORK_NOT_FOUND
	pointNotFound   uint32 = 0x803B0002 // HCN_E_ENDPOINT_NOT_FOUND
	notImplemented  uint32 = 0x80004001 // E_NOTIMPL
	failed          uint32 = 0x80004005 // E_FAIL
)

// Answer answers one message of our DLLs: the name of the function and its arguments, each ended by
// a zero byte. The answer is the function's HRESULT, little-endian, and a text.
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
	case "HcnOpenEndpoint", "HcnQueryEndpointProperties":
		at, found := s.endpoint(argument(0))
		if !found {
			return pointNotFound, ""
		}
		return encoded(s.newerEndpoint(s.state.Endpoints[at]))
	case "HcnDeleteNetwork":
		return deleted(networkNotFound)(s.removeNetwork(argument(0)))
	case "HcnDeleteEndpoint":
		return deleted(pointNotFound)(s.removeEndpoint(argument(0)))
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

// filter reads what a query of the newer interface asks for: fields that must be equal.
func filter(query string) (map[string]string, error) {
	var outer struct{ Filter string }
	if err := json.Unmarshal([]byte(query), &outer); err != nil || outer.Filter == "" {
		return nil, err
	}
	wanted := map[string]string{}
	return wanted, json.Unmarshal([]byte(outer.Filter), &wanted)
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
		if (!byName || name == e.Name) && (!byNetwork || sameID(on, e.Network)) {
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
