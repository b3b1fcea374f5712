package program

import (
	"context"

	"github.com/windows-nodes/wmco/lab/sim"
)

// idle is a service that has nothing more to do than to be there until it is stopped: it writes a
// first line to its log and listens on a port, unless that is 0.
type idle struct {
	name string
	// logFile is where it logs; its standard error output if empty.
	logFile string
	port    int
}

func (s idle) run(ctx context.Context, p *sim.Process) int {
	log := p.Stderr
	if s.logFile != "" {
		file, err := openLog(p, s.logFile)
		if err != nil {
			return refuse(p, err)
		}
		defer func() { _ = file.Close() }()
		log = file
	}
	if s.port != 0 {
		release, err := p.Listen(s.port)
		if err != nil {
			return refuse(p, err)
		}
		defer release()
	}
	_, lines := withLog(ctx, log, p.Host.System.Now)
	lines.Info("stand-in started", "program", s.name)
	p.Running()
	<-ctx.Done()
	lines.Info("stand-in stopped", "program", s.name)
	return 0
}
