//go:build !windows

package main

import (
	"context"
	"errors"
)

// thisMachine returns an error, because this machine doesn't run Windows.
func thisMachine(context.Context) (host, error) {
	return nil, errors.New("this machine doesn't run Windows: use a simulated host with --simulated")
}
