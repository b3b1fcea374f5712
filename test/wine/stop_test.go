//go:build linux

package wine_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/wine"
	"github.com/windows-nodes/wmco/lab/wine/fault"
)

// If Windows or an administrator stops a service, its program may still run and hold resources that the next process
// needs. The daemon must end the old program before it starts the service again.
// TestA42_OnWindowsAServiceThatDoesNotEndIsEndedAndStartsAnew in winos shows how long the daemon waits when it stops a
// service itself.
func TestA42_WhatGoesOnAfterItsServiceStoppedIsEndedBeforeTheServiceStartsAnew(t *testing.T) {
	s := shared
	h := s.host(steady)
	for _, test := range []struct {
		name, service, exe, fault string
		stop                      func(t *testing.T, pid uint32)
	}{
		{"csi-proxy says that it has stopped, and goes on", contract.ServiceCSIProxy, contract.PathCSIProxy,
			fault.Lingers("csi-proxy.exe"),
			func(t *testing.T, _ uint32) { windowsRuns(t, h, "sc.exe", "stop", contract.ServiceCSIProxy) }},
		{"the wrapper of kube-proxy is killed, and kube-proxy goes on", contract.ServiceKubeProxy,
			contract.PathKubeProxy, "",
			func(t *testing.T, pid uint32) {
				windowsRuns(t, h, "taskkill.exe", "/f", "/pid", strconv.FormatUint(uint64(pid), 10))
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			host, twice := windows(t, h), fault.Twice(test.exe[strings.LastIndexByte(test.exe, '\\')+1:])
			if test.fault != "" {
				if err := winos.WriteFile(host.Files, test.fault, strings.NewReader(""),
					winos.AccessInherit); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = host.Files.Remove(test.fault) }()
			}
			before := s.pids(t, h)[test.service]
			test.stop(t, before)
			s.await(t, test.service+" to run anew", func(ctx context.Context) (bool, string, error) {
				now, err := host.Services.Get(ctx, test.service)
				running := running(h, test.exe)
				return now.State == winos.ServiceRunning && now.PID != before && len(running) == 1,
					fmt.Sprintf("the process was %d, and is %d: %s; these processes run: %q", before, now.PID,
						now.State, running), err
			})
			if there, err := winos.Exists(host.Files, twice); err != nil || there {
				t.Errorf("two processes of the service ran at the same time: %v", err)
			}
		})
	}
	s.await(t, "all services to run", func(ctx context.Context) (bool, string, error) { return s.allRun(ctx, t, h) })
}

// background runs a program, and returns when the program has written its first byte. The program ends when its
// standard input ends: when end is called, or with the test.
func background(t *testing.T, h *fleet.Host, program string, arguments ...string) (end func() error) {
	t.Helper()
	stdin, hangUp := io.Pipe()
	said, stdout := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		code, err := machine(h).Run(t.Context(), wine.Command{Program: program, Arguments: arguments, Stdin: stdin,
			Stdout: stdout, Stderr: &stderr})
		if err == nil && code != 0 {
			err = fmt.Errorf("%s ended with %d: %s", program, code, &stderr)
		}
		_ = stdout.Close()
		ended <- err
	}()
	end = sync.OnceValue(func() error {
		_ = hangUp.Close()
		return <-ended
	})
	t.Cleanup(func() { _ = end() })
	if _, err := io.ReadFull(said, make([]byte, 1)); err != nil {
		t.Fatal(end())
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	return end
}

// running returns the command lines of a program's processes. It ignores processes that only have the program's name as
// an argument.
func running(h *fleet.Host, exe string) (lines []string) {
	for _, line := range machine(h).Processes() {
		if strings.HasPrefix(strings.ToLower(strings.TrimLeft(line, `"`)), strings.ToLower(exe)) {
			lines = append(lines, line)
		}
	}
	return lines
}

// windowsRuns runs a program that is part of Windows.
func windowsRuns(t *testing.T, h *fleet.Host, program string, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	var said bytes.Buffer
	code, err := machine(h).Run(ctx, wine.Command{Program: program, Arguments: arguments, Stdout: &said, Stderr: &said})
	if err != nil || code != 0 {
		t.Fatalf("%s %v ended with %d, %v: %s", program, arguments, code, err, &said)
	}
}
