// Command servicewrapper runs an ordinary program as a Windows service. service-wrapper.exe is the command of the
// service; its flags are followed by the program and the program's arguments.
//
// The program ends with the wrapper, even if the wrapper is killed, and the wrapper ends with the program. The wrapper
// has no version, so that another release of the operator doesn't restart services. On other systems it runs the
// program in the foreground.
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

// stopLimit is the maximum time to wait until a killed program has ended.
const stopLimit = 10 * time.Second

// failed is the exit code if the program could not be run.
const failed = 1

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(failed)
	}
	os.Exit(serve(o))
}

// order is the program to run, with its settings.
type order struct {
	// logFile is the file that the program's output is appended to. If it is empty, the output is discarded.
	logFile string
	// environment is added to the wrapper's own environment.
	environment []string
	command     []string
}

// parse parses the wrapper's flags, which end at the first other argument.
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
