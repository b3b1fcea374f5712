package logs_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/logs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestA44_ALogGoesOnWhileSomebodyReadsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan string)
		said := make(chan struct{})
		m, err := sim.New(sim.Options{Programs: map[string]sim.Program{
			"kubelet.exe": func(ctx context.Context, p *sim.Process) int {
				p.Running()
				for {
					select {
					case line := <-lines:
						_, _ = p.Stderr.Write([]byte(line + "\n")) // klog ignores errors of the write
						said <- struct{}{}
					case <-ctx.Done():
						return 0
					}
				}
			}}})
		check(t, err)
		defer func() { check(t, m.Close()) }()
		limits := blueprint.DefaultLogging()
		limits.FileSize.Set(100)
		log, command := limits.Runner("kubelet")
		host := m.Host()
		check(t, host.Files.MkdirAll(contract.DirK, winos.AccessAdministrators))
		check(t, host.Files.MkdirAll(log.Path[:strings.LastIndexByte(log.Path, '\\')], winos.AccessInherit))
		for _, exe := range []string{contract.PathKubeLogRunner, contract.PathKubelet} {
			check(t, winos.WriteFile(host.Files, exe, strings.NewReader("MZ"), winos.AccessInherit))
		}
		check(t, host.Services.Apply(t.Context(), winos.ServiceConfig{Name: contract.ServiceKubelet,
			Command: strings.Join(append(command, contract.PathKubelet), " ")}))
		check(t, host.Services.Start(t.Context(), contract.ServiceKubelet))
		rotator := logs.NewRotator(host)
		rotator.Follow(contract.Manifest{Services: []contract.Service{{Name: contract.ServiceKubelet, Log: log}}})
		say := func(line string) {
			lines <- line
			<-said
			rotator.Turn(t.Context())
		}
		say("first")
		reader, err := host.Files.Open(log.Path) // a log agent, or kubectl get --raw /logs
		check(t, err)
		say(strings.Repeat("x", 200))
		say("after")
		content, err := winos.ReadFile(host.Files, log.Path)
		if check(t, err); !strings.Contains(string(content), "after\n") {
			t.Errorf("lines after the log was full are lost; the log has %q", content)
		}
		check(t, reader.Close())
		check(t, host.Services.Stop(t.Context(), contract.ServiceKubelet))
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
