package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/windows-nodes/wmco/internal/version"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/wine"
)

type wineHosts struct {
	template *wine.Template
	payload  string
	parts    []wine.Part
}

// newWineHosts prepares Wine for hosts. If withPayload is true, it also builds the payload for the hosts.
func newWineHosts(ctx context.Context, count int, withPayload bool, progress io.Writer) (_ *wineHosts, err error) {
	template, err := wine.Prepare(ctx, wine.Options{Progress: progress})
	if err != nil {
		return nil, err
	}
	if count > 1 && !template.Isolated() {
		return nil, errors.New("without namespaces, which this kernel or user does not have, there can be one host " +
			"of Wine only")
	}
	w := &wineHosts{template: template}
	if !withPayload {
		return w, nil
	}
	if w.payload, err = os.MkdirTemp("", "wmco-wine-payload-"); err != nil {
		return nil, fmt.Errorf("making a directory for the payload: %w", err)
	}
	fmt.Fprintln(progress, "building the payload; containerd takes a minute or two the first time")
	if w.parts, err = wine.WritePayload(ctx, w.payload, version.Version(), io.Discard); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *wineHosts) close() error { return os.RemoveAll(w.payload) }

func (w *wineHosts) use(options *scene.Options) {
	options.Payload, options.Complete = w.payload, false
	options.Computer = func(ctx context.Context, hostname string, address netip.Addr,
		reach []netip.AddrPort) (fleet.Computer, error) {
		return w.template.StartAt(ctx, hostname, address, reach)
	}
}

// computer returns a function that starts a host in Wine. The host can connect to the addresses in the list `reach`.
func (w *wineHosts) computer(reach []netip.AddrPort) func(ctx context.Context, hostname string,
	address netip.Addr) (fleet.Computer, error) {
	return func(ctx context.Context, hostname string, address netip.Addr) (fleet.Computer, error) {
		return w.template.StartAt(ctx, hostname, address, reach)
	}
}

type wineReport struct {
	Version string `json:"version"`
	// Binaries lists the programs of the payload, and says which of them were replaced.
	Binaries []wine.Part `json:"binaries"`
	// Played lists other parts of Windows that were replaced.
	Played []string `json:"played"`
	// Boots counts the boots of all hosts. FailedBoots counts failed boots, which were repeated.
	Boots       int `json:"boots"`
	FailedBoots int `json:"failedBoots"`
}

func (w *wineHosts) report(ctx context.Context, hosts []*fleet.Host) (*wineReport, error) {
	version, err := w.template.Version(ctx)
	if err != nil {
		return nil, err
	}
	r := &wineReport{Version: version, Binaries: w.parts,
		Played: []string{"host network service (HNS)", "OpenSSH server", "Windows itself (Wine)"}}
	for _, h := range hosts {
		if m, ok := h.Computer.(*wine.Machine); ok {
			tried, failed := m.Boots()
			r.Boots, r.FailedBoots = r.Boots+tried, r.FailedBoots+failed
		}
	}
	return r, nil
}
