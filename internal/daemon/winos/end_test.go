package winos_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

const exe = contract.DirK + `\csi-proxy\csi-proxy.exe`

// running returns the number of processes that run exe.
func running(m *sim.Machine, exe string) (count int) {
	for _, p := range m.Processes() {
		if strings.EqualFold(p.Exe, exe) {
			count++
		}
	}
	return count
}

func TestA42_AServiceWhoseProcessGoesOnIsEndedAfterItsTime(t *testing.T) {
	t.Parallel()
	wrapped := contract.PathKubeLogRunner + ` -log-file=C:\var\log\x.log ` + exe + ` --flag`
	for name, c := range map[string]struct {
		command string
		before  func(m *sim.Machine)
	}{
		"the service reports that it has stopped, but its process continues": {exe, func(m *sim.Machine) { m.StopLinger("x", time.Hour) }},
		"the service never reports that it has stopped":                      {exe, func(m *sim.Machine) { m.HangStop("x", true) }},
		"its wrapper never stops":                                            {wrapped, func(m *sim.Machine) { m.HangStop("x", true) }},
		"the wrapper was killed, and its program continues": {wrapped, func(m *sim.Machine) {
			if err := m.CrashService("x"); err != nil {
				panic(err)
			}
			synctest.Wait()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := withService(t, c.command)
				services := winos.WithTimeouts(m.Host()).Services
				must(t, services.Start(t.Context(), "x"))
				synctest.Wait()
				if n := running(m, exe); n != 1 {
					t.Fatalf("%d processes run", n)
				}
				c.before(m)
				began := time.Now()
				must(t, services.Stop(t.Context(), "x"))
				if n := running(m, exe); n != 0 || time.Since(began) > 2*time.Minute {
					t.Errorf("%d processes are left after %s", n, time.Since(began))
				}
				m.HangStop("x", false)
				m.StopLinger("x", 0)
				must(t, services.Start(t.Context(), "x"))
				synctest.Wait()
				if n := running(m, exe); n != 1 {
					t.Errorf("after the next start, %d processes run", n)
				}
			})
		})
	}
}

func TestA42_WhatAnEarlierRunLeftIsEndedBeforeANewStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := withService(t, contract.PathKubeLogRunner+` -log-file=C:\var\log\x.log `+exe)
		services := winos.WithTimeouts(m.Host()).Services
		must(t, services.Start(t.Context(), "x"))
		synctest.Wait()
		before := m.Processes()
		must(t, m.CrashService("x")) // Windows ends the wrapper, and kubelet would keep its port
		synctest.Wait()
		must(t, services.Start(t.Context(), "x"))
		synctest.Wait()
		if n := running(m, exe); n != 1 {
			t.Errorf("%d processes of the service run at the same time", n)
		}
		for _, p := range m.Processes() {
			if strings.EqualFold(p.Exe, exe) && slices.ContainsFunc(before, func(b sim.ProcessInfo) bool {
				return b.PID == p.PID
			}) {
				t.Error("the process of the earlier run still runs")
			}
		}
	})
}

func withService(t *testing.T, command string) *sim.Machine {
	t.Helper()
	m, err := sim.New(sim.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	files := m.Host().Files
	must(t, files.MkdirAll(contract.DirK+`\csi-proxy`, winos.AccessAdministrators))
	must(t, files.MkdirAll(contract.DirLog, winos.AccessInherit))
	for _, path := range []string{exe, contract.PathKubeLogRunner} {
		must(t, winos.WriteFile(files, path, strings.NewReader("MZ"), winos.AccessInherit))
	}
	must(t, m.Host().Services.Apply(t.Context(), winos.ServiceConfig{Name: "x", Command: command}))
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
