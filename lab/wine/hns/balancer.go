package hns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// LoadBalancer distributes the connections of a service to its endpoints. It has the JSON form of computenetwork.dll.
type LoadBalancer struct {
	ID                   string
	HostComputeEndpoints []string
	SourceVIP            string   `json:",omitempty"`
	FrontendVIPs         []string `json:",omitempty"`
	PortMappings         []PortMapping
	SchemaVersion        map[string]int
	Flags                uint32 `json:",omitempty"`
}

// PortMapping is a port of the service and the port of its endpoints.
type PortMapping struct {
	Protocol                   uint32 `json:",omitempty"`
	InternalPort, ExternalPort uint16 `json:",omitempty"`
	DistributionType           uint32 `json:",omitempty"`
	Flags                      uint32 `json:",omitempty"`
}

// Programmed returns the load balancers in the file of a Service. It replaces the IDs of their endpoints by addresses.
// If there is no file, it returns none.
func Programmed(path string) ([]LoadBalancer, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state of HNS: %w", err)
	}
	s := &Service{}
	if err = json.Unmarshal(content, &s.state); err != nil {
		return nil, fmt.Errorf("reading the state of HNS: %w", err)
	}
	for _, balancer := range s.state.LoadBalancers {
		for i, id := range balancer.HostComputeEndpoints {
			if at, found := s.endpoint(id); found {
				balancer.HostComputeEndpoints[i] = s.state.Endpoints[at].Address.String()
			}
		}
	}
	return s.state.LoadBalancers, nil
}

func (s *Service) balancer(id string) (at int, found bool) {
	at = slices.IndexFunc(s.state.LoadBalancers, func(b LoadBalancer) bool { return sameID(b.ID, id) })
	return at, at >= 0
}

func (s *Service) enumerateBalancers(query string) (uint32, string) {
	wanted, err := filter(query)
	if err != nil {
		return failed, ""
	}
	ids := []string{}
	for _, b := range s.state.LoadBalancers {
		if id, byID := wanted["ID"]; !byID || sameID(id, b.ID) {
			ids = append(ids, b.ID)
		}
	}
	return encoded(ids)
}

// createBalancer creates a load balancer and returns its new ID.
func (s *Service) createBalancer(settings string) (uint32, string) {
	var wanted LoadBalancer
	if err := json.Unmarshal([]byte(settings), &wanted); err != nil {
		return refused(refusal{invalidJSON, "reading the load balancer: " + err.Error()})
	}
	if len(wanted.PortMappings) == 0 || len(wanted.HostComputeEndpoints) == 0 {
		return refused(refusal{invalidPolicy, "a load balancer has a port and an endpoint at least"})
	}
	for _, id := range wanted.HostComputeEndpoints {
		if _, found := s.endpoint(id); !found {
			return refused(refusal{pointNotFound, "endpoint " + id + " does not exist"})
		}
	}
	wanted.ID = newID()
	s.state.LoadBalancers = append(s.state.LoadBalancers, wanted)
	if err := s.save(); err != nil {
		return refused(err)
	}
	return ok, wanted.ID
}

func (s *Service) removeBalancer(id string) (found bool, err error) {
	at, found := s.balancer(id)
	if !found {
		return false, nil
	}
	s.state.LoadBalancers = slices.Delete(s.state.LoadBalancers, at, at+1)
	return true, s.save()
}
