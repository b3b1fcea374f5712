// Command servicewrapper runs an ordinary program as a Windows service. The service's command line is
// service-wrapper.exe, then the wrapper's flags, then the program and its arguments.
//
// If the wrapper ends, the program ends as well, even if the wrapper was killed. If the program ends, the wrapper ends.
// The wrapper contains no version number. So its digest is the same in each release of the operator, and an upgrade
// doesn't restart the services. On systems other than Windows, the wrapper runs the program in the foreground.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const stopLimit = 10 * time.Second

const failed = 1

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(failed)
	}
	os.Exit(serve(o))
}

type order struct {
	// logFile is the file that the program's output is appended to. If it is empty, the output is discarded.
	logFile string
	// environment is added to the wrapper's own environment.
	environment []string
	command     []string
}

// parse parses the wrapper's flags. The first argument that is not a flag is the program to run.
func parse(args []string) (o order, err error) {
	flags := flag.NewFlagSet("service-wrapper", flag.ContinueOnError)
	flags.StringVar(&o.logFile, "log-file", "", "file that the program's output is appended to")
	flags.Func("env", "variable NAME=value of the program's environment; may be repeated", func(text string) error {
		if name, _, ok := strings.Cut(text, "="); !ok || name == "" {
			return fmt.Errorf("%q is not NAME=value", text)
		}
		o.environment = append(o.environment, text)
		return nil
	})
	if err = flags.Parse(args); err != nil {
		return order{}, fmt.Errorf("parsing flags: %w", err)
	}
	if o.command = flags.Args(); len(o.command) == 0 {
		return order{}, errors.New("there is no program to run")
	}
	return o, nil
}

// run runs the program until the program or ctx ends, and returns the exit code.
func run(ctx context.Context, o order) (code int, err error) {
	program := exec.CommandContext(ctx, o.command[0], o.command[1:]...)
	program.Env = slices.Concat(os.Environ(), o.environment)
	program.WaitDelay = stopLimit
	if o.logFile != "" {
		log, err := os.OpenFile(o.logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return failed, fmt.Errorf("opening the log: %w", err)
		}
		defer func() { err = errors.Join(err, log.Close()) }()
		program.Stdout, program.Stderr = log, log
	}
	err = program.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return failed, fmt.Errorf("running %s: %w", o.command[0], err)
	}
	return 0, nil
}
