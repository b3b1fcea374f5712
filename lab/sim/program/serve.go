package program

import (
	"context"

	"github.com/windows-nodes/wmco/lab/sim"
)

// idle is a service that does nothing until it is stopped. It writes one line to its log. If port is not 0, it listens
// on this port.
type idle struct {
	name string
	// logFile is the path of the log. If it is empty, the service logs to standard error.
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
