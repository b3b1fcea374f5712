// Command servicewrapper runs an ordinary program as a Windows service. service-wrapper.exe is the command of the
// service; the arguments after its flags are the program and its arguments.
//
// If the wrapper ends, for any reason, the program ends as well. If the program ends, the wrapper ends. The wrapper has
// no version of its own, so that another release of the operator restarts no service. On other systems, it runs the
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

// stopLimit bounds how long the program may take to be gone once it was killed.
const stopLimit = 10 * time.Second

// failed is the exit code when the program could not be run.
const failed = 1

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(failed)
	}
	os.Exit(serve(o))
}

// order is what to run.
type order struct {
	// logFile gets what the program writes, appended; empty for nowhere.
	logFile string
	// environment adds variables to the wrapper's own environment.
	environment []string
	command     []string
}

// parse reads the wrapper's flags, which end at the first word that is none.
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

// run runs the program until it ends or ctx does, and gives its exit code.
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
