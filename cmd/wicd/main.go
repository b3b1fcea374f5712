// Command wicd is the daemon: it makes a Windows machine a node, and runs on this machine as the service
// windows-instance-config-daemon.
//
// Its commands are in internal/daemon/verbs. On systems other than Windows, wicd compiles and shows its help, but its
// commands fail.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/verbs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// version is set with -ldflags "-X main.version=…".
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the path of this program: %w", err)
	}
	root := verbs.New(verbs.Options{
		Host:       winos.New(),
		Version:    version,
		HomeDir:    home(self),
		Self:       self,
		Stdin:      os.Stdin,
		Stdout:     os.Stdout,
		Stderr:     os.Stderr,
		RunService: runService,
	})
	return root.ExecuteContext(ctx)
}

// home returns the parent of the RPC directory if the program at the path self is in an RPC directory. Otherwise, home
// returns the user's home directory.
func home(self string) string {
	dir := filepath.Dir(self)
	if strings.EqualFold(filepath.Base(dir), contract.RPCDir) {
		return filepath.Dir(dir)
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return "" // with --rpc, verbs report that the home directory is unknown
	}
	return user
}
