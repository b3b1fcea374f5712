//go:build !windows

package main

import (
	"context"
	"errors"
)

// thisMachine needs Windows.
func thisMachine(context.Context) (host, error) {
	return nil, errors.New("this machine has no Windows: take a simulated host, --simulated")
}
