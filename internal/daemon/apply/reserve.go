package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// dirNetworks is where the CNI plugin host-local keeps a directory for each network, with a file for each
// address that it gave out.
// Source: containernetworking/plugins, plugins/ipam/host-local/backend/disk.
const dirNetworks = state.DirCNIState + `\networks`

func dirReserved(network string) string { return dirNetworks + `\` + network }

// reservation is what our files there hold; those of pods begin with their container's id.
const reservation = contract.SourceVIPEndpointName + "\r\n"

// reserve keeps the address of kube-proxy's endpoint from pods. HNS takes it from the range that
// host-local gives out, anew at each boot, and host-local goes by its files alone. An address that
// a pod had before is reserved once that pod's file has gone.
func (k *Applier) reserve(ctx context.Context, address string) *contract.Problem {
	dir := dirReserved(k.state.Manifest.HNSNetwork())
	path := dir + `\` + address
	there, err := winos.Exists(k.host.Files, path)
	if err == nil && there {
		return nil
	}
	err = errors.Join(err, ReleaseAddresses(k.host.Files), state.Ensure(k.host.Files, k.state, dir))
	if err == nil {
		err = winos.WriteFile(k.host.Files, path, strings.NewReader(reservation), winos.AccessInherit)
	}
	if err != nil {
		return FileProblem(fmt.Errorf("reserving the address of %s: %w", contract.SourceVIPEndpointName, err))
	}
	logr.FromContextOrDiscard(ctx).Info("reserved the address of kube-proxy's endpoint", "address", address)
	return nil
}

// reserved reserves the address that kube-proxy's files name, if they do.
func (k *Applier) reserved(ctx context.Context, facts plan.Lookup[contract.Fact]) *contract.Problem {
	if !plan.AsksFor(k.state.Manifest, contract.FactSourceVIP) {
		return nil
	}
	if address, problem := facts(contract.FactSourceVIP); problem == nil {
		return k.reserve(ctx, address)
	}
	return nil // what needs it says so
}

// ReleaseAddresses removes our reservations, in every network. A user's directory is none: he could lead
// what is removed there elsewhere.
func ReleaseAddresses(files winos.Files) error {
	networks, err := files.List(dirNetworks)
	if errors.Is(err, fs.ErrNotExist) || err == nil && usersOwn(files, dirNetworks) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing reserved addresses: %w", err)
	}
	var all []error
	for _, network := range networks {
		if network.Dir && !usersOwn(files, dirReserved(network.Name)) {
			all = append(all, releaseIn(files, dirReserved(network.Name)))
		}
	}
	return errors.Join(all...)
}

func usersOwn(files winos.Files, dir string) bool {
	info, err := files.Stat(dir)
	return err != nil || info.Foreign
}

func releaseIn(files winos.Files, dir string) error {
	entries, err := files.List(dir)
	if err != nil {
		return fmt.Errorf("listing reserved addresses: %w", err)
	}
	var all []error
	for _, e := range entries {
		path := dir + `\` + e.Name
		if e.Size != int64(len(reservation)) {
			continue
		}
		if content, err := winos.ReadFile(files, path); err == nil && string(content) == reservation {
			all = append(all, files.Remove(path))
		}
	}
	return errors.Join(all...)
}
