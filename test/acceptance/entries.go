package acceptance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// entriesOfTrouble returns the rows about wrong entries of windows-instances.
func entriesOfTrouble() map[string]trial {
	return map[string]trial{
		"A08": {stage: stageDisrupt, disrupts: []Disruption{DisruptEntries}, try: unreachableHosts,
			shows: "an address where nothing answers, and a name that does not resolve"},
		"A10": {stage: stageDisrupt, disrupts: []Disruption{DisruptEntries}, try: malformedEntries,
			shows: "entries without =, entries without a user, and an entry whose key is not an address"},
	}
}

const (
	// unreachable is an address that never answers: RFC 5737 reserves its network for documentation.
	unreachable = "192.0.2.1"
	// unresolvable is a name that never resolves: RFC 2606 reserves its domain.
	unresolvable = "wmco-e2e.invalid"
	someone      = "username=Administrator"
)

// unreachableHosts tests row A08: it lists an unreachable address and a name that does not resolve. Each must have its
// reason, code and fix within a minute.
func unreachableHosts(ctx context.Context, r *run) error {
	want := map[string]contract.Reason{unreachable: contract.ReasonUnreachable,
		unresolvable: contract.ReasonAddressUnresolvable}
	if err := listEntries(ctx, r, map[string]string{unreachable: someone, unresolvable: someone}); err != nil {
		return err
	}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(want)) {
		problems = append(problems, r.await(ctx, time.Minute, "the reason of host "+key,
			func(ctx context.Context) (bool, string, error) {
				i, err := r.instance(ctx, key)
				if err != nil || i == nil {
					return false, state(i), err
				}
				ok := i.Status.Reason() == string(want[key]) && strings.Contains(i.Status.Message(), want[key].Fix())
				if ok {
					r.note("%s: %s", key, state(i))
				}
				return ok, state(i), nil
			}))
	}
	problems = append(problems, ownStayReady(ctx, r), remove(ctx, r, unreachable, unresolvable))
	return errors.Join(problems...)
}

// malformedEntries tests row A10: the operator must reject each malformed entry with a reason.
func malformedEntries(ctx context.Context, r *run) error {
	bad := map[string]string{"wmco-e2e-without-equals.invalid": "Administrator",
		"wmco-e2e-without-user.invalid": "username=", "wmco_e2e_is_no_address": someone}
	if err := listEntries(ctx, r, bad); err != nil {
		return err
	}
	err := r.await(ctx, r.Timeout, "the entries being reported", func(ctx context.Context) (bool, string, error) {
		config, err := r.config(ctx)
		if err != nil {
			return false, "", err
		}
		r.notes = nil
		for _, rejected := range config.Status.RejectedEntries {
			if _, mine := bad[rejected.Key]; mine && rejected.Code != "" && rejected.Message != "" {
				r.note("%s: %s %s", rejected.Key, rejected.Code, rejected.Message)
			}
		}
		return len(r.notes) == len(bad), fmt.Sprintf("%d of %d are", len(r.notes), len(bad)), nil
	})
	return errors.Join(err, ownStayReady(ctx, r), remove(ctx, r, slices.Sorted(maps.Keys(bad))...))
}

// ownStayReady checks that the nodes of this run are Ready.
func ownStayReady(ctx context.Context, r *run) error {
	var problems []error
	for _, n := range r.nodes {
		problems = append(problems, ready(ctx, r, n.Host))
	}
	return errors.Join(problems...)
}

// remove deletes entries of this run, and waits until their WindowsInstances are gone.
func remove(ctx context.Context, r *run, keys ...string) error {
	removed, err := unlist(ctx, r, func(key string, m mark) bool { return m.Run == r.id && slices.Contains(keys, key) })
	if err != nil {
		return err
	}
	return gone(ctx, r, removed)
}
