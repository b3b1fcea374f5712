// Command keeper keeps a Wine host running. Without it, Wine would end all services when the last ordinary program
// ends. The keeper runs as long as its standard input is open. It serves the OS interface of its machine to the lab on
// its standard streams, and simulates the host network service. It starts another process that restarts the daemon's
// service after a failure, as Windows does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/wine/remote"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == restartArgument {
		restartDaemon()
		return
	}
	if err := run(winos.New()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(host winos.Host) error {
	if err := serveHNS(host); err != nil {
		return err
	}
	lifeline, err := startRestarter(context.Background())
	if err != nil {
		return err
	}
	defer func() { _ = lifeline.Close() }()
	return remote.Serve(host, stream{os.Stdin, os.Stdout})
}

// stream combines standard input and output.
type stream struct {
	io.ReadCloser
	out io.WriteCloser
}

func (s stream) Write(p []byte) (int, error) { return s.out.Write(p) }

func (s stream) Close() error { return errors.Join(s.ReadCloser.Close(), s.out.Close()) }
