//go:build !linux

package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
)

func newWine() *cobra.Command {
	return &cobra.Command{Use: "wine", Short: "Run real Windows programs, under Wine (on Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return errors.New("hosts made of Wine need Linux")
		}}
}

// prepareWine does nothing: hosts made of Wine need Linux.
func prepareWine(context.Context, io.Writer) error { return nil }
