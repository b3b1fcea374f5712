package hns

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
)

// Service is the stand-in. It is for concurrent use.
type Service struct {
	path       string
	management func() (netip.Addr, error)

	mu    sync.Mutex
	state state
}

// state outlives a boot, as it does on Windows.
type state struct {
	Networks  []network
	Endpoints []endpoint
}

type network struct {
	ID, Name, Type string
	Subnet         netip.Prefix
	ManagementIP   netip.Addr
}

type endpoint struct {
	ID, Name, Network string
	Address           netip.Addr
	Attached          bool
}

// Options of a service.
type Options struct {
	// Path is the file that keeps networks and endpoints.
	Path string
	// Management gives the address of the host's network card, which a network takes over.
	Management func() (netip.Addr, error)
}

// New starts a service with what its file holds.
func New(options Options) (*Service, error) {
	s := &Service{path: options.Path, management: options.Management}
	content, err := os.ReadFile(options.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what HNS holds: %w", err)
	}
	if err = json.Unmarshal(content, &s.state); err != nil {
		return nil, fmt.Errorf("reading what HNS holds: %w", err)
	}
	return s, nil
}

// save writes the state; the caller holds the lock.
func (s *Service) save() error {
	content, err := json.Marshal(s.state)
	if err != nil {
		return fmt.Errorf("writing what HNS holds: %w", err)
	}
	if err = os.WriteFile(s.path, content, 0o600); err != nil {
		return fmt.Errorf("writing what HNS holds: %w", err)
	}
	return nil
}

func (s *Service) network(id string) (network, bool) {
	at := slices.IndexFunc(s.state.Networks, func(n network) bool { return sameID(n.ID, id) })
	if at < 0 {
		return network{}, false
	}
	return s.state.Networks[at], true
}

func (s *Service) endpoint(id string) (at int, found bool) {
	at = slices.IndexFunc(s.state.Endpoints, func(e endpoint) bool { return sameID(e.ID, id) })
	return at, at >= 0
}

// addNetwork makes a network. Names need not be unique.
func (s *Service) addNetwork(n network) (network, error) {
	if !n.Subnet.Addr().Is4() {
		return n, fmt.Errorf("network %s has no IPv4 subnet", n.Name)
	}
	var err error
	if n.ManagementIP, err = s.management(); err != nil {
		return n, fmt.Errorf("finding the management address: %w", err)
	}
	n.ID, n.Subnet = newID(), n.Subnet.Masked()
	s.state.Networks = append(s.state.Networks, n)
	return n, s.save()
}

// removeNetwork takes its endpoints along.
func (s *Service) removeNetwork(id string) (found bool, err error) {
	if _, found = s.network(id); !found {
		return false, nil
	}
	s.state.Networks = slices.DeleteFunc(s.state.Networks, func(n network) bool { return sameID(n.ID, id) })
	s.state.Endpoints = slices.DeleteFunc(s.state.Endpoints, func(e endpoint) bool { return sameID(e.Network, id) })
	return true, s.save()
}

// addEndpoint gives it the first address of its network that is free. The first two of each network
// belong to its gateway.
func (s *Service) addEndpoint(e endpoint) (endpoint, error) {
	on, found := s.network(e.Network)
	if !found {
		return e, fmt.Errorf("network %s does not exist", e.Network)
	}
	e.ID, e.Network = newID(), on.ID
	for address := on.Subnet.Addr().Next().Next().Next(); on.Subnet.Contains(address); address = address.Next() {
		if !slices.ContainsFunc(s.state.Endpoints,
			func(o endpoint) bool { return o.Network == on.ID && o.Address == address }) {
			e.Address = address
			s.state.Endpoints = append(s.state.Endpoints, e)
			return e, s.save()
		}
	}
	return e, fmt.Errorf("network %s has no free address", on.Name)
}

func (s *Service) removeEndpoint(id string) (found bool, err error) {
	at, found := s.endpoint(id)
	if !found {
		return false, nil
	}
	s.state.Endpoints = slices.Delete(s.state.Endpoints, at, at+1)
	return true, s.save()
}

// sameID compares identifiers, which come with and without braces and in either case.
func sameID(a, b string) bool {
	return strings.EqualFold(strings.Trim(a, "{}"), strings.Trim(b, "{}"))
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
