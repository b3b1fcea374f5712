// Package keep answers how this host is brought to, and held at, what it must be: it looks, plans, and takes the steps.
//
// Bootstrap makes one pass with it; the service makes one whenever something changed. Every step may be repeated, and is written into
// the ledger before it is taken, so a pass that dies anywhere is finished by the next. It talks to no API server and knows no schedule.
package keep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/agent/fact"
	"github.com/windows-nodes/wmco/internal/agent/ledger"
	"github.com/windows-nodes/wmco/internal/agent/place"
	"github.com/windows-nodes/wmco/internal/agent/plan"
	"github.com/windows-nodes/wmco/internal/agent/store"
	"github.com/windows-nodes/wmco/internal/agent/target"
	"github.com/windows-nodes/wmco/internal/agent/winos"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Keeper holds one host at its target. It is not for concurrent use.
type Keeper struct {
	host    winos.Host
	book    *ledger.Book
	store   *store.Store
	digests digests
	lives   lives
	repeats repeats
	// last is the target of the last pass, for Glance.
	last target.Target
}

// New makes a Keeper of a host whose ledger is book.
func New(host winos.Host, book *ledger.Book) *Keeper {
	return &Keeper{
		host: host, book: book, store: store.New(host.Files),
		digests: digests{files: host.Files, now: host.System.Now, known: map[string]seen{}},
		lives:   lives{now: host.System.Now, of: map[string]*life{}},
		repeats: repeats{now: host.System.Now, of: map[plan.Step][]time.Time{}},
	}
}

// Request says what to bring about.
type Request struct {
	Scope target.Scope
	// Node is the Node in its unstructured form, or nil while it is not known.
	Node map[string]any
	// Thorough reads every file again, instead of trusting those whose size and time are as before.
	Thorough bool
}

// Report is the outcome of a pass.
type Report struct {
	// Steps that were taken.
	Steps []plan.Step
	// Waiting is what is not known yet, Failed what could not be done, in order of importance.
	Waiting, Failed []*contract.Problem
}

// Holds says whether everything is as it must be.
func (r Report) Holds() bool { return len(r.Waiting)+len(r.Failed) == 0 }

// sort tells what will come by itself from what will not: a value that can't be used is a failure, not something to wait for.
func (r *Report) sort(unknown []*contract.Problem) {
	for _, p := range unknown {
		switch p.Reason {
		case contract.ReasonNetworkPending, contract.ReasonNodePending:
			r.Waiting = append(r.Waiting, p)
		default:
			r.Failed = append(r.Failed, p)
		}
	}
}

// Problem is the most important reason why not everything holds, or nil.
func (r Report) Problem() *contract.Problem {
	for _, p := range slices.Concat(r.Failed, r.Waiting) {
		return p
	}
	return nil
}

// Pass looks at the host, plans, and takes the steps. The ledger's manifest, which must be valid, says what is wanted. A step that fails keeps only
// those from being taken that need it.
func (k *Keeper) Pass(ctx context.Context, request Request) Report {
	var report Report
	want := target.Resolve(target.Input{
		Manifest: k.book.Manifest, Extra: k.book.Extra, Scope: request.Scope,
		Node: fact.FromNode(request.Node, k.book.NodeValues), Host: fact.Of(ctx, k.host),
	})
	k.last = want
	if request.Thorough {
		k.digests.forget()
	}
	have, err := k.observe(ctx, want)
	if err != nil {
		report.Failed = append(report.Failed, asProblem(contract.ReasonInternal, err))
		return report
	}
	todo := plan.Diff(want, have, k.book.Ledger)
	report.sort(todo.Waiting)
	run := &run{Keeper: k, want: want, have: have, broken: map[string]bool{}, report: &report, log: logr.FromContextOrDiscard(ctx)}
	report.Failed = append(report.Failed, todo.Conflicts...)
	for _, step := range todo.Steps {
		if ctx.Err() != nil {
			report.Failed = append(report.Failed, contract.NewProblem(contract.ReasonInProgress, "stopped before everything was done"))
			return report
		}
		run.take(ctx, step)
	}
	if err = place.Sweep(k.host.Files, k.book); err != nil {
		report.Failed = append(report.Failed, place.Problem(err))
	}
	report.Failed = slices.Concat(report.Failed, k.lives.problems(), k.repeats.problems())
	return report
}

// observe looks at what the target and the ledger name.
func (k *Keeper) observe(ctx context.Context, want target.Target) (plan.Observed, error) {
	have := plan.Observed{Services: map[string]winos.Service{}, Digests: map[string]string{}}
	var err error
	if have.Environment, err = k.host.Environment.All(ctx); err != nil {
		return have, fmt.Errorf("reading the system environment: %w", err)
	}
	names := slices.Collect(maps.Keys(k.book.Services))
	for _, s := range want.Services {
		names = append(names, s.Name)
	}
	for _, name := range names {
		service, err := k.host.Services.Get(ctx, name)
		if errors.Is(err, winos.ErrNotFound) {
			continue
		}
		if err != nil {
			return have, fmt.Errorf("looking at service %s: %w", name, err)
		}
		have.Services[name] = service
	}
	for _, s := range want.Services {
		if s.Waiting == nil {
			k.lives.saw(s.Name, have.Services[s.Name])
		}
	}
	for _, f := range want.Files {
		digest, err := k.digests.of(ctx, f.Path)
		if err != nil {
			return have, err
		}
		if digest != "" {
			have.Digests[f.Path] = digest
		}
	}
	return have, nil
}

// Glance says whether something of the last pass's target is visibly no longer so. It asks for the states of services, the sizes and times of files,
// and the environment; it reads no file and starts nothing. What a pass could not do, or waits for, does not count.
func (k *Keeper) Glance(ctx context.Context) bool {
	for _, s := range k.last.Services {
		if s.Waiting != nil {
			continue
		}
		current, err := k.host.Services.Get(ctx, s.Name)
		if err != nil || current.State != winos.ServiceRunning || !plan.Equal(current.ServiceConfig, s.ServiceConfig) || k.lives.ended(s.Name, current) {
			return true
		}
	}
	for _, f := range k.last.Files {
		if f.Waiting == nil && !k.digests.fresh(f.Path) {
			return true
		}
	}
	environment, err := k.host.Environment.All(ctx)
	if err != nil {
		return true
	}
	todo := plan.Diff(target.Target{Scope: target.Bootstrap, Environment: k.last.Environment, Watched: k.last.Watched}, plan.Observed{Environment: environment}, k.book.Ledger)
	return len(todo.Steps) > 0
}

// asProblem keeps a Problem as it is and gives any other error a reason.
func asProblem(reason contract.Reason, err error) *contract.Problem {
	if p, ok := contract.AsProblem(err); ok {
		return p
	}
	return contract.NewProblem(reason, "%v", err)
}
