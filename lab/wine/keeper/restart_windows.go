package main

import (
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/windows-nodes/wmco/internal/contract"
)

// restartDaemon starts the daemon's service again when it ended with an error, as Windows' service manager does by the
// service's recovery actions. Wine's keeps these, and does nothing about them.
func restartDaemon() {
	for range time.Tick(time.Second) {
		if m, err := mgr.Connect(); err == nil {
			restart(m)
			_ = m.Disconnect()
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
