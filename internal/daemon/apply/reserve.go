package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// dirNetworks is where the CNI plugin host-local stores a directory per network, with a file for each assigned
// address. Source: containernetworking/plugins, plugins/ipam/host-local/backend/disk.
const dirNetworks = state.DirCNIState + `\networks`

func dirReserved(network string) string { return dirNetworks + `\` + network }

// reservation is the content of our files in host-local's directories. The files of pods start with a container ID.
const reservation = contract.SourceVIPEndpointName + "\r\n"

// reserve prevents pods from getting the address of kube-proxy's endpoint. HNS takes this address from host-local's
// range, but host-local knows only addresses that have a file. If a pod already has the address, reserve does nothing.
// A later call reserves the address when the pod's file is gone.
func (a *Applier) reserve(ctx context.Context, network, address string) *contract.Problem {
	dir := dirReserved(network)
	path := dir + `\` + address
	there, err := winos.Exists(a.host.Files, path)
	if err == nil && there {
		return nil
	}
	_, failed := ReleaseAddresses(a.host.Files)
	err = errors.Join(err, failed, state.Ensure(a.host.Files, a.state, dir))
	if err == nil {
		err = winos.WriteFile(a.host.Files, path, strings.NewReader(reservation), winos.AccessInherit)
	}
	if err != nil {
		return FileProblem(fmt.Errorf("reserving the address of %s: %w", contract.SourceVIPEndpointName, err))
	}
	logr.FromContextOrDiscard(ctx).Info("reserved the address of kube-proxy's endpoint", "address", address)
	return nil
}

// ReleaseAddresses deletes our reservations in every network. If a user without administrator rights owns a directory
// above a reservation, ReleaseAddresses keeps the reservation and returns its path. Otherwise that user could redirect
// the deletion to other files.
func ReleaseAddresses(files winos.Files) (kept []string, err error) {
	networks, err := files.List(dirNetworks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	all := []error{err}
	for _, network := range networks {
		if !network.Dir {
			continue
		}
		ours, err := reservations(files, dirReserved(network.Name))
		all = append(all, err)
		for _, path := range ours {
			if problem, err := state.UntrustedAbove(files, path); problem != nil || err != nil {
				kept = append(kept, path)
				continue
			}
			all = append(all, files.Remove(path))
		}
	}
	return kept, errors.Join(all...)
}

func reservations(files winos.Files, dir string) (ours []string, err error) {
	entries, err := files.List(dir)
	if err != nil {
		return nil, fmt.Errorf("listing reserved addresses: %w", err)
	}
	for _, e := range entries {
		path := dir + `\` + e.Name
		if e.Size != int64(len(reservation)) {
			continue
		}
		if content, err := winos.ReadFile(files, path); err == nil && string(content) == reservation {
			ours = append(ours, path)
		}
	}
	return ours, nil
}
