// Command keeper keeps a Wine host on: Wine ends all services when the last ordinary program has
// ended. As long as its standard input is open, it also serves the OS interface of its machine on
// its standard streams, for the laboratory, plays the host network service, and has another process restart the
// daemon's service as Windows does.
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

// stream is standard input and output as one.
type stream struct {
	io.ReadCloser
	out io.WriteCloser
}

func (s stream) Write(p []byte) (int, error) { return s.out.Write(p) }

func (s stream) Close() error { return errors.Join(s.ReadCloser.Close(), s.out.Close()) }
