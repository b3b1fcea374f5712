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

// Programs returns the programs of a simulated host: the real code of the daemon, and stand-ins for all other programs.
func Programs(version string) map[string]sim.Program {
	programs := program.Standins(program.Options{})
	for name, run := range programs {
		programs[name] = marked(run)
	}
	programs[contract.ServiceDaemon+".exe"] = daemon(version)
	return programs
}

// Marks that the fourth line of a stand-in's exe may contain.
const (
	markStuck   = "stand-in that runs and does nothing"
	markFailing = "stand-in that ends at once"
)

// headSize is how many bytes at the start of an exe are read.
const headSize = 256

// The function marked makes a stand-in behave according to the mark in its exe. So a kubelet that hangs is a different
// file than a kubelet that works, as in production.
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

// versionOf returns the version in the third line of an exe. If the exe isn't a stand-in, it returns the second
// argument.
func versionOf(head, otherwise string) string {
	if lines := strings.SplitN(head, "\n", 4); len(lines) == 4 && lines[0] == "MZ" {
		return lines[2]
	}
	return otherwise
}

// headOf returns the first bytes of an exe. If the file can't be opened, it returns an empty string.
func headOf(files winos.Files, path string) string {
	f, err := files.Open(path)
	if err != nil {
		return ""
	}
	head := make([]byte, headSize)
	n, _ := io.ReadFull(f, head) // an error only means that the file is shorter
	if err = f.Close(); err != nil {
		return ""
	}
	return string(head[:n])
}

// daemon returns a program that runs the commands of the daemon on a simulated machine. All versions of the daemon run
// the same code, but each reports the version in its exe. If the exe has the mark for a stuck or failing daemon, only
// the daemon's service fails, and only after it has counted its start.
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
			return 0 // the service was stopped
		}
		return 1
	}
}

func command(otherwise string) sim.Program {
	return func(ctx context.Context, p *sim.Process) int {
		version := versionOf(headOf(p.Host.Files, p.Args[0]), otherwise)
		command := verbs.New(verbs.Options{
			Host: p.Host, Version: version, HomeDir: p.Machine.Home(), Self: p.Args[0],
			Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, RunService: p.RunService,
		})
		command.SetArgs(p.Args[1:])
		if err := command.ExecuteContext(ctx); err != nil {
			fmt.Fprintln(p.Stderr, err)
			return 1
		}
		return 0
	}
}
