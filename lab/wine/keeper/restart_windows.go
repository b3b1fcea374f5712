package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/windows-nodes/wmco/internal/contract"
)

// restartArgument is the argument that makes this program the restarter: it then only restarts the daemon.
const restartArgument = "restart"

// startRestarter starts the restarter, which ends when its standard input ends, and therefore with the keeper. The
// restarter needs its own process, because Wine returns ERROR_INVALID_HANDLE if two threads of one process use the
// service manager at the same time.
func startRestarter(ctx context.Context) (lifeline io.Closer, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the keeper's program: %w", err)
	}
	restarter := exec.CommandContext(ctx, exe, restartArgument)
	if lifeline, err = restarter.StdinPipe(); err != nil {
		return nil, fmt.Errorf("connecting to the restarter: %w", err)
	}
	if err = restarter.Start(); err != nil {
		return nil, fmt.Errorf("starting the restarter: %w", err)
	}
	return lifeline, nil
}

// restartDaemon restarts the daemon's service after it has ended with an error. On Windows, the service manager does
// this, as the service's recovery actions tell it. Wine's service manager stores these actions, but ignores them.
// restartDaemon returns when standard input ends.
func restartDaemon() {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
			if m, err := mgr.Connect(); err == nil {
				restart(m)
				_ = m.Disconnect()
			}
		}
	}
}

func restart(m *mgr.Mgr) {
	s, err := m.OpenService(contract.ServiceDaemon)
	if err != nil {
		return // the host is not a node
	}
	defer func() { _ = s.Close() }()
	status, err := s.Query()
	if err == nil && status.State == svc.Stopped &&
		status.Win32ExitCode == uint32(windows.ERROR_SERVICE_SPECIFIC_ERROR) {
		_ = s.Start() // after an error, try again in a second
	}
}
