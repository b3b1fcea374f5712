// Package guard answers who goes back when a new daemon does not come up.
//
// A daemon that is about to be exchanged posts its own program as a service of another name. That
// one watches the new daemon from outside: when it is down for long, or shows no sign of life in
// time, the guard puts the program back that ran before, notes in the ledger what was refused, and
// starts the service. It survives crashes, hangs and reboots. The daemon that is in charge in the
// end dismisses it. It talks to no API server, and nobody else may go back from outside.
package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/layout"
	"github.com/windows-nodes/wmco/internal/daemon/ledger"
	"github.com/windows-nodes/wmco/internal/daemon/place"
	"github.com/windows-nodes/wmco/internal/daemon/target"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Verb is the command that the guard's service runs.
const Verb = "guard"

// Post has the daemon's program, whose digest is given, stand guard. A guard that is there already
// is replaced.
func Post(ctx context.Context, host winos.Host, book *ledger.Book, digest string) error {
	if err := Withdraw(ctx, host.Services); err != nil {
		return err
	}
	book.AddFile(contract.PathGuard)
	book.SetService(contract.ServiceGuard, ledger.Start{})
	if err := book.Save(); err != nil {
		return err
	}
	if err := copyTo(ctx, host.Files, contract.PathDaemon, digest); err != nil {
		return place.Problem(err)
	}
	if err := host.Files.Rename(spare, contract.PathGuard); err != nil {
		return place.Problem(fmt.Errorf("placing the guard's program: %w", err))
	}
	delays, reset := target.DaemonRecovery()
	err := host.Services.Apply(ctx, winos.ServiceConfig{
		Name: contract.ServiceGuard, Description: target.Description(contract.ServiceGuard),
		Command:  contract.PathGuard + " " + Verb + " --windows-service",
		Recovery: delays, RecoveryReset: reset,
	})
	if err != nil {
		return err
	}
	return host.Services.Start(ctx, contract.ServiceGuard)
}

// Posted says whether the ledger knows of a guard.
func Posted(book *ledger.Book) bool {
	_, posted := book.Services[contract.ServiceGuard]
	return posted
}

// Dismiss takes the guard and its program away, and crosses them off. Repeating it changes nothing.
func Dismiss(ctx context.Context, host winos.Host, book *ledger.Book) error {
	if err := Withdraw(ctx, host.Services); err != nil {
		return err
	}
	for _, path := range []string{spare, contract.PathGuard} {
		if err := host.Files.Remove(path); err != nil {
			return fmt.Errorf("removing the guard's program: %w", err)
		}
	}
	delete(book.Services, contract.ServiceGuard)
	book.RemoveFile(contract.PathGuard)
	return book.Save()
}

// Withdraw ends the guard's service and removes it, so that it acts no more: who does the daemon's
// work on the host in its stead calls it before anything else. Repeating it changes nothing. A
// service of that name that is not ours is an error.
func Withdraw(ctx context.Context, services winos.Services) error {
	found, err := services.Get(ctx, contract.ServiceGuard)
	if errors.Is(err, winos.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for the guard: %w", err)
	}
	if !target.Managed(found.Description) {
		return contract.NewProblem(contract.ReasonConflictingSoftware, "service %s exists and is not ours",
			contract.ServiceGuard)
	}
	if err = services.Stop(ctx, contract.ServiceGuard); err != nil && !errors.Is(err, winos.ErrNotFound) {
		return fmt.Errorf("stopping the guard: %w", err)
	}
	if err = services.Delete(ctx, contract.ServiceGuard); err != nil {
		return fmt.Errorf("removing the guard: %w", err)
	}
	return nil
}

// spare is where a copy of a program lies until it has its name.
const spare = contract.PathGuard + ".tmp"

// copyTo makes spare a verified copy of a program.
func copyTo(ctx context.Context, files winos.Files, path, digest string) error {
	content, err := files.Open(path)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	blob := place.Blob{Digest: digest, Content: content, Access: layout.Access(contract.PathGuard)}
	return errors.Join(place.Stage(ctx, files, contract.PathGuard, blob), content.Close())
}
