// Package order defines the command line of the suite's test service. The command line controls the service's behavior.
//
// The suite writes such command lines. The test service on real Windows and its counterpart on the simulated machine
// parse them.
package order

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Orders describe how a test service behaves. With the zero value, a service runs until it is stopped, and then exits.
type Orders struct {
	// Fail makes the process exit with code 1 at its start.
	Fail bool
	// Linger is how long the process continues to run after it has reported that it is stopped.
	Linger time.Duration
	// Environment is an absolute path without spaces. At its start, the service writes its environment to this file,
	// with one NAME=value per line.
	Environment string
}

// Command returns the command line of a service. exe is the path of its program, without spaces.
func (o Orders) Command(exe string) string {
	words := []string{exe}
	if o.Fail {
		words = append(words, "fail")
	}
	if o.Linger > 0 {
		words = append(words, "linger="+o.Linger.String())
	}
	if o.Environment != "" {
		words = append(words, "environment="+o.Environment)
	}
	return strings.Join(words, " ")
}

// Parse parses the arguments of such a command line, without the exe.
func Parse(args []string) (Orders, error) {
	var o Orders
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		var err error
		switch name {
		case "fail":
			o.Fail = true
		case "linger":
			o.Linger, err = time.ParseDuration(value)
		case "environment":
			o.Environment = value
		default:
			err = errors.New("unknown order")
		}
		if err != nil {
			return Orders{}, fmt.Errorf("reading order %q: %w", arg, err)
		}
	}
	return o, nil
}
