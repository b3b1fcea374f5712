package report

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const absent = "Absent"

// partLimit limits the time to read one part of the report, because the host network service may take seconds.
const partLimit = 15 * time.Second

// Limits of a report. A realistic report has up to a dozen services and some dozens of routes. With these limits, a
// report is smaller than contract.MaxReport, even if every character must be escaped.
const (
	maxListed = 50
	maxText   = 128
)

// Look returns the report of a host. version is the daemon's version.
func Look(ctx context.Context, host winos.Host, version string) contract.NodeReport {
	r := contract.NodeReport{Time: host.System.Now().UTC(), Version: version}
	var was state.State
	file, err := state.Read(host.Files)
	if err == nil && !file.Exists() {
		err = errors.New("it is missing or damaged")
	} else if err == nil {
		was = file.State
	}
	unread(&r, "state file", err)
	r.Node, r.State = was.NodeName, stateOf(was)
	inTime(ctx, func(ctx context.Context) { services(ctx, host.Services, was, &r) })
	inTime(ctx, func(ctx context.Context) { networks(ctx, host.Network, was, &r) })
	inTime(ctx, func(ctx context.Context) { routes(ctx, host.Routes, &r) })
	return r
}

// inTime calls `look` with a time limit. If the limit is exceeded, only one part of the report is missing.
func inTime(ctx context.Context, look func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, partLimit)
	defer cancel()
	look(ctx)
}

func routes(ctx context.Context, table winos.Routes, r *contract.NodeReport) {
	addresses, err := table.Addresses(ctx)
	unread(r, "addresses", err)
	for _, a := range addresses {
		r.Addresses = append(r.Addresses, a.String())
	}
	rows, err := table.Table(ctx)
	unread(r, "routes", err)
	for _, row := range rows {
		r.Routes = append(r.Routes, contract.ReportedRoute{Destination: row.Destination.String(),
			NextHop: text(row.NextHop), Interface: row.Interface, Metric: row.Metric})
	}
}

func stateOf(was state.State) contract.ReportedState {
	s := contract.ReportedState{Revision: was.Revision.Name, Verified: was.Verified, Directories: len(was.Directories),
		Files: len(was.Files), Certificates: len(was.Certificates), Variables: len(was.Environment),
		Features: was.Features, Routes: was.Routes}
	if was.Before != nil {
		s.Before = was.Before.Name
	}
	if f := was.Failed; f != nil {
		s.Failed, s.FailedUntil = f.Name, new(f.Until.UTC())
		if f.Problem != nil {
			s.Why = string(f.Problem.Reason) + ": " + f.Problem.Detail
		}
	}
	if was.Reboots != nil {
		s.Reboots = was.Reboots.Count
	}
	return s
}

func services(ctx context.Context, manager winos.Services, was state.State, r *contract.NodeReport) {
	names := append(slices.Collect(maps.Keys(was.Services)), contract.ServiceDaemon)
	for _, s := range was.Manifest.Services {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		found, err := manager.Get(ctx, name)
		switch {
		case errors.Is(err, winos.ErrNotFound):
			r.Services = append(r.Services, contract.ReportedService{Name: name, State: absent})
		case err != nil:
			unread(r, "service "+name, err)
		default:
			r.Services = append(r.Services, contract.ReportedService{Name: name, State: string(found.State),
				PID: found.PID, Foreign: !contract.IsManaged(found.Description)})
		}
	}
}

func networks(ctx context.Context, network winos.Network, was state.State, r *contract.NodeReport) {
	if was.Revision.Name == "" {
		return
	}
	names := slices.Concat(was.Networks, []string{was.Manifest.HNSNetwork()})
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		found, err := network.HNSNetwork(ctx, name)
		switch {
		case errors.Is(err, winos.ErrNotFound):
			r.Networks = append(r.Networks, contract.ReportedNetwork{Name: name, Absent: true})
		case err != nil:
			unread(r, "network "+name, err)
		default:
			r.Networks = append(r.Networks, contract.ReportedNetwork{Name: name, Subnet: text(found.Subnet),
				ManagementIP: text(found.ManagementIP), VNI: found.VNI})
		}
	}
}

// `text` formats an address or a prefix. If the value is invalid, the result is an empty string.
func text[T interface {
	netip.Addr | netip.Prefix
	IsValid() bool
	String() string
}](value T) string {
	if !value.IsValid() {
		return ""
	}
	return value.String()
}

func unread(r *contract.NodeReport, what string, err error) {
	if err != nil {
		r.Unread = append(r.Unread, fmt.Sprintf("%s: %v", what, err))
	}
}

// bound shortens long texts and lists, because others may have chosen the names of services and files.
func bound(r *contract.NodeReport) {
	r.Version, r.Node = short(r.Version), short(r.Node)
	s := &r.State
	s.Revision, s.Before, s.Failed, s.Why = short(s.Revision), short(s.Before), short(s.Failed), short(s.Why)
	s.Features, s.Routes = shorts(s.Features, &r.Omitted), shorts(s.Routes, &r.Omitted)
	r.Unread = shorts(r.Unread, &r.Omitted)
	r.Addresses = shorts(r.Addresses, &r.Omitted)
	r.Services = few(r.Services, &r.Omitted, func(s *contract.ReportedService) { s.Name = short(s.Name) })
	r.Networks = few(r.Networks, &r.Omitted, func(n *contract.ReportedNetwork) { n.Name = short(n.Name) })
	r.Routes = few(r.Routes, &r.Omitted, func(row *contract.ReportedRoute) { row.Interface = short(row.Interface) })
	if r.Reconciled == nil {
		return
	}
	last := *r.Reconciled
	last.Desired = short(last.Desired)
	last.Problems = shorts(last.Problems, &r.Omitted)
	last.Differences = few(last.Differences, &r.Omitted, func(d *contract.Difference) {
		d.Name, d.Why = short(d.Name), short(d.Why)
	})
	r.Reconciled = &last
}

func few[T any](all []T, omitted *int, edit func(*T)) []T {
	*omitted += max(0, len(all)-maxListed)
	kept := slices.Clone(all[:min(len(all), maxListed)])
	for i := range kept {
		edit(&kept[i])
	}
	return kept
}

func shorts(all []string, omitted *int) []string {
	return few(all, omitted, func(s *string) { *s = short(*s) })
}

func short(text string) string { return contract.OneLine(text, maxText) }
