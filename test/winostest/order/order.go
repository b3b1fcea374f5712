// Package order defines the command line of the suite's test service, which controls its behavior.
//
// The suite writes such command lines; the service on real Windows and the program of the simulated
// machine read them. It does nothing itself.
package order

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Orders say how a test service behaves. The zero value runs until it is asked to stop, and ends
// then.
type Orders struct {
	// Fail makes its process end with code 1 before it runs.
	Fail bool
	// Linger is how long its process stays after it has reported that it is stopped.
	Linger time.Duration
	// Environment is an absolute path without spaces: before it runs, the service writes its
	// environment there, NAME=value in each line.
	Environment string
}

// Command is the command line of a service whose exe is at this path, without spaces in it.
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

// Parse reads the arguments of such a command line, without the exe.
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
