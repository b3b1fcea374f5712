package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Verb is the command that the watchdog's service runs.
const Verb = "watchdog"

// StartWatchdog has the program of the daemon that held last be the watchdog: that is the one to
// put back. It is the running one, whose digest is given, or another, if the revision that brought
// the running one was never verified. A watchdog that is there already is replaced.
func StartWatchdog(ctx context.Context, host winos.Host, stateFile *state.File, digest string) error {
	if err := RemoveWatchdog(ctx, host.Services); err != nil {
		return err
	}
	if err := host.Services.Delete(ctx, contract.ServiceWatchdog); err != nil { // waits until it is gone
		return fmt.Errorf("waiting for the one before to go; is it open in the Services console? %w", err)
	}
	stateFile.AddFile(contract.PathWatchdog)
	stateFile.SetService(contract.ServiceWatchdog, state.Start{})
	if err := stateFile.Save(); err != nil {
		return err
	}
	path := contract.PathDaemon
	if held := stateFile.Before; held != nil {
		if program, known := held.Manifest.DaemonProgram(); known && program.Digest != digest {
			path, digest = contract.DirStore+`\`+program.Digest, program.Digest
		}
	}
	switch err := copyTo(ctx, host.Files, path, digest); {
	case path != contract.PathDaemon && errors.Is(err, apply.ErrDigest):
		return apply.FileProblem(errors.Join(err, host.Files.Remove(path))) // it is fetched again
	case path != contract.PathDaemon && errors.Is(err, fs.ErrNotExist):
		return contract.NewProblem(contract.ReasonPayloadIncomplete, "the program of revision %s, to which the host "+
			"would go back, is not in %s", stateFile.Before.Name, contract.DirStore)
	case err != nil:
		return apply.FileProblem(err)
	}
	if err := winos.Replace(host.Files, spare, contract.PathWatchdog); err != nil {
		return apply.FileProblem(fmt.Errorf("placing the watchdog's program: %w", err))
	}
	delays, reset := plan.DaemonRecovery()
	err := host.Services.Apply(ctx, winos.ServiceConfig{
		Name: contract.ServiceWatchdog, Description: plan.Description(contract.ServiceWatchdog),
		Command:  contract.PathWatchdog + " " + Verb + " --windows-service",
		Recovery: delays, RecoveryReset: reset,
	})
	if err != nil {
		return err
	}
	return host.Services.Start(ctx, contract.ServiceWatchdog)
}

// Enable has Windows start the daemon at boot again where somebody has disabled its service, or set it
// to Manual: what starts it is not running then. It stops nothing.
func Enable(ctx context.Context, services winos.Services) error {
	own, err := services.Get(ctx, contract.ServiceDaemon)
	if err != nil || !own.NoAutoStart {
		return nil //nolint:nilerr // who uses the service next finds out more
	}
	return services.Apply(ctx, own.ServiceConfig)
}

// WatchdogRuns says whether the state file has a watchdog.
func WatchdogRuns(stateFile *state.File) bool {
	_, posted := stateFile.Services[contract.ServiceWatchdog]
	return posted
}

// StopWatchdog takes the watchdog and its program away, and crosses them off. Repeating it changes
// nothing.
func StopWatchdog(ctx context.Context, host winos.Host, stateFile *state.File) error {
	if err := RemoveWatchdog(ctx, host.Services); err != nil {
		return err
	}
	for _, path := range []string{spare, contract.PathWatchdog} {
		if err := host.Files.Remove(path); err != nil {
			return fmt.Errorf("removing the watchdog's program: %w", err)
		}
	}
	delete(stateFile.Services, contract.ServiceWatchdog)
	stateFile.RemoveFile(contract.PathWatchdog)
	return stateFile.Save()
}

// RemoveWatchdog ends the watchdog's service and removes it, as apply.RemoveService does, so that it acts no more: who
// does the daemon's work on the host in its stead calls it before anything else. Repeating it changes nothing. A
// service of that name that is not ours is an error.
func RemoveWatchdog(ctx context.Context, services winos.Services) error {
	found, err := services.Get(ctx, contract.ServiceWatchdog)
	if errors.Is(err, winos.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for the watchdog: %w", err)
	}
	if !contract.IsManaged(found.Description) {
		return contract.NewProblem(contract.ReasonConflictingSoftware, "service %s exists and is not ours",
			contract.ServiceWatchdog)
	}
	if err = apply.RemoveService(ctx, services, contract.ServiceWatchdog); err != nil {
		return fmt.Errorf("removing the watchdog: %w", err)
	}
	return nil
}

// spare is where a copy of a program lies until it has its name.
const spare = contract.PathWatchdog + ".tmp"

// copyTo makes spare a verified copy of a program.
func copyTo(ctx context.Context, files winos.Files, path, digest string) error {
	content, err := winos.OpenClosed(files, path)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	blob := apply.Content{Digest: digest, Content: content, Access: state.Access(contract.PathWatchdog)}
	return errors.Join(apply.StageFile(ctx, files, contract.PathWatchdog, blob), content.Close())
}
