package verbs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// cleanupVerb is the subcommand of this program that the one-shot service runs.
const cleanupVerb = "cleanup-service"

// answer returns the path of the file with the one-shot service's answer.
func (w Where) answer() string { return RPCPath(w.Home) + `\cleanup.json` }

func (w Where) command() string {
	command := `"` + w.Self + `" ` + cleanupVerb
	if w.Released {
		command += " " + released
	}
	return command
}

// CleanupDetached starts a one-shot service that cleans the host, waits for the service, and returns its answer. The
// cleanup runs in a service because the removal of the base network breaks the SSH connection, and OpenSSH for Windows
// may then kill the commands that it started. If CleanupDetached is called again, it waits for the running service, or
// returns the answer of the finished service.
func CleanupDetached(ctx context.Context, host winos.Host, where Where) (contract.CleanupAnswer, error) {
	// If this exe is outside the RPC directory, like the exe of the installed daemon, the cleanup deletes it. A service
	// whose exe is gone can't continue after a reboot, so clean the host in this process.
	if where.Home == "" || !contract.Within(RPCPath(where.Home), where.Self) {
		return cleanupAlone(ctx, host, where)
	}
	if err := beginCleanup(ctx, host, where); err != nil {
		logr.FromContextOrDiscard(ctx).Info("cleaning the host without a separate service", "detail", err.Error())
		return cleanupAlone(ctx, host, where)
	}
	err := wait.PollUntilContextCancel(ctx, turnLook, true, func(ctx context.Context) (ended bool, err error) {
		found, err := host.Services.Get(ctx, contract.ServiceCleanup)
		if errors.Is(err, winos.ErrNotFound) { // a service marked for deletion disappears when it stops
			return true, nil
		}
		return found.State == winos.ServiceStopped, err
	})
	if err != nil {
		return contract.CleanupAnswer{}, fmt.Errorf("waiting for service %s: %w", contract.ServiceCleanup, err)
	}
	return collectCleanup(ctx, host, where)
}

// beginCleanup starts the one-shot service, unless the service is running or has already written its answer.
func beginCleanup(ctx context.Context, host winos.Host, where Where) error {
	found, err := host.Services.Get(ctx, contract.ServiceCleanup)
	switch {
	case errors.Is(err, winos.ErrNotFound):
		if err = host.Files.Remove(where.answer()); err != nil {
			return fmt.Errorf("removing an old answer: %w", err)
		}
	case err != nil:
		return err
	case found.State != winos.ServiceStopped:
		return nil
	}
	if done, err := winos.Exists(host.Files, where.answer()); err != nil || done {
		return err
	}
	if err = host.Services.Apply(ctx, winos.ServiceConfig{
		Name: contract.ServiceCleanup, Description: plan.Description(contract.ServiceCleanup),
		Command: where.command(),
	}); err != nil {
		return err
	}
	err = host.Services.Start(ctx, contract.ServiceCleanup)
	if done, _ := winos.Exists(host.Files, where.answer()); done {
		return nil // the service ended before Start saw it running
	}
	if err != nil {
		return errors.Join(err, host.Services.Delete(ctx, contract.ServiceCleanup))
	}
	return nil
}

// collectCleanup reads the answer of a one-shot service that has ended, and deletes the service and the answer.
func collectCleanup(ctx context.Context, host winos.Host, where Where) (answer contract.CleanupAnswer, err error) {
	// The service has ended, but its process may still exist and use the uploaded program.
	if err = host.Services.Stop(ctx, contract.ServiceCleanup); err != nil && !errors.Is(err, winos.ErrNotFound) {
		return answer, fmt.Errorf("waiting for the end of service %s: %w", contract.ServiceCleanup, err)
	}
	content, err := winos.ReadFile(host.Files, where.answer())
	if err == nil {
		err = json.Unmarshal(content, &answer)
	}
	if err != nil {
		err = fmt.Errorf("reading the answer of service %s: %w", contract.ServiceCleanup, err)
	}
	return answer, errors.Join(err, host.Services.Delete(ctx, contract.ServiceCleanup),
		host.Files.Remove(where.answer()))
}

// serveCleanup runs in the one-shot service: it cleans the host and writes the answer.
func serveCleanup(ctx context.Context, host winos.Host, where Where) error {
	answer, err := cleanupAlone(ctx, host, where)
	if err != nil {
		return err
	}
	content, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	return winos.WriteFile(host.Files, where.answer(), bytes.NewReader(content), winos.AccessAdministrators)
}

// cleanupAlone kills the process of a call that is still running, and then cleans the host in this process.
func cleanupAlone(ctx context.Context, host winos.Host, where Where) (answer contract.CleanupAnswer, err error) {
	release, err := seizeTurn(ctx, host.Programs)
	if err != nil {
		return answer, err
	}
	defer func() { err = errors.Join(err, release()) }()
	return Cleanup(ctx, host, where)
}

// withdrawCleanup removes the one-shot service when the host is wanted again. Otherwise the service would clean the
// host at the next boot. withdrawCleanup marks the service for deletion before stopping it. Otherwise the daemon of a
// released host would start the service again.
func withdrawCleanup(ctx context.Context, services winos.Services) error {
	err := services.DeleteAtStop(ctx, contract.ServiceCleanup)
	if err == nil {
		err = services.Stop(ctx, contract.ServiceCleanup)
	}
	if err == nil {
		err = services.Delete(ctx, contract.ServiceCleanup) // Delete waits until the service is gone
	}
	if err != nil && !errors.Is(err, winos.ErrNotFound) {
		return fmt.Errorf("removing service %s: %w", contract.ServiceCleanup, err)
	}
	return nil
}
