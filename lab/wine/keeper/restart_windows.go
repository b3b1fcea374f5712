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

// restartArgument makes the keeper a process that only restarts the daemon.
const restartArgument = "restart"

// startRestarter starts that process. It ends with its standard input, and so with the keeper. It is a process of its
// own because Wine returns ERROR_INVALID_HANDLE if two threads of one process use the service manager at once.
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

// restartDaemon starts the daemon's service again if it ended with an error, as Windows' service manager does because
// of the service's recovery actions. Wine's service manager stores these actions, and does not take them. restartDaemon
// returns when standard input ends.
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
		return // the host is no node
	}
	defer func() { _ = s.Close() }()
	status, err := s.Query()
	if err == nil && status.State == svc.Stopped &&
		status.Win32ExitCode == uint32(windows.ERROR_SERVICE_SPECIFIC_ERROR) {
		_ = s.Start() // it is tried again a second later
	}
}
