package scene

import (
	"context"
	"fmt"

	"github.com/windows-nodes/wmco/internal/agent/cli"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/sim"
	"github.com/windows-nodes/wmco/internal/sim/program"
)

// Programs are what runs on a simulated host: stand-ins for what others make, and the daemon's real code.
func Programs(version string) map[string]sim.Program {
	programs := program.Standins(program.Options{})
	programs[contract.ServiceDaemon+".exe"] = daemon(version)
	return programs
}

// daemon is the daemon's command tree as a program of a simulated machine.
func daemon(version string) sim.Program {
	return func(ctx context.Context, p *sim.Process) int {
		command := cli.New(cli.Options{
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
