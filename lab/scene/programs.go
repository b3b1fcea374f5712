package scene

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
	hoststate "github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/verbs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/program"
)

// Programs are what runs on a simulated host: stand-ins for what others make, and the daemon's real
// code.
func Programs(version string) map[string]sim.Program {
	programs := program.Standins(program.Options{})
	for name, run := range programs {
		programs[name] = marked(run)
	}
	programs[contract.ServiceDaemon+".exe"] = daemon(version)
	return programs
}

// What an exe of ours says of itself, on its fourth line.
const (
	markStuck   = "stand-in that runs and does nothing"
	markFailing = "stand-in that ends at once"
)

// headSize is how much of an exe is looked at.
const headSize = 256

// marked lets a stand-in behave as its exe says: a build whose kubelet hangs is another file, as it
// would be in earnest.
func marked(run sim.Program) sim.Program {
	return func(ctx context.Context, p *sim.Process) int {
		switch head := headOf(p.Host.Files, p.Args[0]); {
		case strings.Contains(head, markFailing):
			return 1
		case strings.Contains(head, markStuck):
			if p.Running != nil {
				p.Running()
			}
			<-ctx.Done()
			return 0
		}
		return run(ctx, p)
	}
}

// versionOf is what an exe says that it is, on its third line.
func versionOf(head, otherwise string) string {
	if lines := strings.SplitN(head, "\n", 4); len(lines) == 4 && lines[0] == "MZ" {
		return lines[2]
	}
	return otherwise
}

// headOf is the beginning of an exe, or nothing.
func headOf(files winos.Files, path string) string {
	f, err := files.Open(path)
	if err != nil {
		return ""
	}
	head := make([]byte, headSize)
	n, _ := io.ReadFull(f, head) // most are longer
	if err = f.Close(); err != nil {
		return ""
	}
	return string(head[:n])
}

// daemon is the daemon's command tree as a program of a simulated machine. Each version of it is
// the same code here, which calls itself what its exe says; one that is stuck or failing is so as a
// service only, after it has counted its start.
func daemon(otherwise string) sim.Program {
	whole := command(otherwise)
	return func(ctx context.Context, p *sim.Process) int {
		head := headOf(p.Host.Files, p.Args[0])
		isStuck := strings.Contains(head, markStuck)
		if len(p.Args) < 2 || p.Args[1] != "controller" || !isStuck && !strings.Contains(head, markFailing) {
			return whole(ctx, p)
		}
		digest, err := apply.DigestOf(ctx, p.Host.Files, p.Args[0])
		stateFile, unread := hoststate.Read(p.Host.Files)
		if err != nil || unread != nil {
			return 1
		}
		if p.Running != nil {
			p.Running()
		}
		_ = selfupdate.New(p.Host, stateFile, digest).Run(ctx, func(ctx context.Context) error {
			if isStuck {
				<-ctx.Done()
			}
			return nil
		})
		if ctx.Err() != nil {
			return 0 // stopped
		}
		return 1
	}
}

func command(otherwise string) sim.Program {
	return func(ctx context.Context, p *sim.Process) int {
		version := versionOf(headOf(p.Host.Files, p.Args[0]), otherwise)
		command := verbs.New(verbs.Options{
			Host: p.Host, Version: version, HomeDir: p.Machine.Home(), Self: p.Args[0],
			Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, Running: p.Running,
		})
		command.SetArgs(p.Args[1:])
		if err := command.ExecuteContext(ctx); err != nil {
			fmt.Fprintln(p.Stderr, err)
			return 1
		}
		return 0
	}
}
