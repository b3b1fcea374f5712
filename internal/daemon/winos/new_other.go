//go:build !windows

package winos

import (
	"context"
	"io"
	"net"
	"net/netip"
	"time"
)

func newHost() Host {
	return Host{
		Services:    noServices{},
		Files:       noFiles{},
		Environment: noEnvironment{},
		Trust:       noTrust{},
		System:      noSystem{},
		Network:     noNetwork{},
		Routes:      noRoutes{},
		Logs:        noLogs{},
		Programs:    noPrograms{},
	}
}

type noServices struct{}

var _ Services = noServices{}

func (noServices) List(context.Context) ([]string, error)       { return nil, ErrUnsupported }
func (noServices) Get(context.Context, string) (Service, error) { return Service{}, ErrUnsupported }
func (noServices) Apply(context.Context, ServiceConfig) error   { return ErrUnsupported }
func (noServices) Start(context.Context, string) error          { return ErrUnsupported }
func (noServices) Stop(context.Context, string) error           { return ErrUnsupported }
func (noServices) Dependants(context.Context, string) ([]string, error) {
	return nil, ErrUnsupported
}
func (noServices) Delete(context.Context, string) error       { return ErrUnsupported }
func (noServices) DeleteAtStop(context.Context, string) error { return ErrUnsupported }

type noFiles struct{}

var _ Files = noFiles{}

func (noFiles) Open(string) (io.ReadCloser, error)            { return nil, ErrUnsupported }
func (noFiles) Create(string, Access) (io.WriteCloser, error) { return nil, ErrUnsupported }
func (noFiles) Rename(string, string) error                   { return ErrUnsupported }
func (noFiles) Remove(string) error                           { return ErrUnsupported }
func (noFiles) RemoveAll(string) error                        { return ErrUnsupported }
func (noFiles) Stat(string) (FileInfo, error)                 { return FileInfo{}, ErrUnsupported }
func (noFiles) List(string) ([]FileInfo, error)               { return nil, ErrUnsupported }
func (noFiles) MkdirAll(string, Access) error                 { return ErrUnsupported }
func (noFiles) Restrict(string) error                         { return ErrUnsupported }

type noEnvironment struct{}

var _ Environment = noEnvironment{}

func (noEnvironment) All(context.Context) (map[string]string, error) { return nil, ErrUnsupported }
func (noEnvironment) Set(context.Context, string, string) error      { return ErrUnsupported }
func (noEnvironment) Unset(context.Context, string) error            { return ErrUnsupported }

type noTrust struct{}

var _ Trust = noTrust{}

func (noTrust) List(context.Context) ([][]byte, error) { return nil, ErrUnsupported }
func (noTrust) Add(context.Context, []byte) error      { return ErrUnsupported }
func (noTrust) Remove(context.Context, []byte) error   { return ErrUnsupported }

type noSystem struct{}

var _ System = noSystem{}

func (noSystem) Facts(context.Context) (Facts, error)                  { return Facts{}, ErrUnsupported }
func (noSystem) Now() time.Time                                        { return time.Now().Round(0) }
func (noSystem) SetHostname(context.Context, string) error             { return ErrUnsupported }
func (noSystem) Feature(context.Context, string) (FeatureState, error) { return "", ErrUnsupported }
func (noSystem) EnableFeature(context.Context, string) error           { return ErrUnsupported }
func (noSystem) Reboot(context.Context, string) error                  { return ErrUnsupported }
func (noSystem) ExcludeFromDefender(context.Context, string) error     { return ErrUnsupported }

type noNetwork struct{}

var _ Network = noNetwork{}

func (noNetwork) NodeIP(context.Context) (netip.Addr, error)        { return netip.Addr{}, ErrUnsupported }
func (noNetwork) Listening(context.Context) (map[int]string, error) { return nil, ErrUnsupported }

func (noNetwork) HNSNetwork(context.Context, string) (HNSNetwork, error) {
	return HNSNetwork{}, ErrUnsupported
}

func (noNetwork) EnsureEndpoint(context.Context, string, string, netip.Addr) (netip.Addr, error) {
	return netip.Addr{}, ErrUnsupported
}

func (noNetwork) RemoveHNSNetwork(context.Context, string) error { return ErrUnsupported }

func (noNetwork) Listen(context.Context, int) (net.Listener, error) { return nil, ErrUnsupported }

func (noNetwork) Dial(context.Context, netip.AddrPort) (net.Conn, error) { return nil, ErrUnsupported }

type noRoutes struct{}

var _ Routes = noRoutes{}

func (noRoutes) Addresses(context.Context) ([]netip.Addr, error)  { return nil, ErrUnsupported }
func (noRoutes) Table(context.Context) ([]Route, error)           { return nil, ErrUnsupported }
func (noRoutes) Ensure(context.Context, netip.Addr) (bool, error) { return false, ErrUnsupported }
func (noRoutes) Remove(context.Context, netip.Addr) error         { return ErrUnsupported }

type noLogs struct{}

var _ Logs = noLogs{}

func (noLogs) Empty(string) error { return ErrUnsupported }

type noPrograms struct{}

var _ Programs = noPrograms{}

func (noPrograms) Run(context.Context, string, ...string) (int, error)   { return 0, ErrUnsupported }
func (noPrograms) Kill(context.Context, uint32, func(string) bool) error { return ErrUnsupported }

func (noPrograms) Processes(context.Context, string) ([]Process, error) { return nil, ErrUnsupported }

func (noPrograms) Lock(context.Context, string) (func() error, uint32, error) {
	return nil, 0, ErrUnsupported
}

func (noPrograms) RemoveAtBoot(string) error                 { return ErrUnsupported }
func (noPrograms) RemoveLayer(context.Context, string) error { return ErrUnsupported }
