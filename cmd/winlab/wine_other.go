//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newWine() *cobra.Command {
	return &cobra.Command{Use: "wine", Short: "Run real Windows programs, under Wine (on Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return errors.New("hosts made of Wine need Linux")
		}}
}
