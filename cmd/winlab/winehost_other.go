//go:build !linux

package main

import (
	"context"
	"errors"
	"io"
	"net/netip"

	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

// wineHosts is empty, because Wine hosts run on Linux only.
type wineHosts struct{}

func newWineHosts(context.Context, int, bool, io.Writer) (*wineHosts, error) {
	return nil, errors.New("hosts made of Wine need Linux")
}

func (*wineHosts) close() error { return nil }

func (*wineHosts) use(*scene.Options) {}

func (*wineHosts) computer([]netip.AddrPort) func(ctx context.Context, hostname string,
	address netip.Addr) (fleet.Computer, error) {
	return nil
}

type wineReport struct{}

func (*wineHosts) report(context.Context, []*fleet.Host) (*wineReport, error) { return nil, nil }
