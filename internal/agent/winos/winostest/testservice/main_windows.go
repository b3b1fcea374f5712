package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/windows/svc"

	"github.com/windows-nodes/wmco/internal/agent/winos/winostest/order"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	orders, err := order.Parse(args)
	if err != nil {
		return err
	}
	if orders.Fail {
		return fmt.Errorf("failing as ordered")
	}
	if orders.Environment != "" {
		if err := os.WriteFile(orders.Environment, []byte(strings.Join(os.Environ(), "\n")+"\n"), 0o600); err != nil {
			return fmt.Errorf("writing the environment: %w", err)
		}
	}
	if err := svc.Run("", service{orders}); err != nil {
		return fmt.Errorf("running as a service: %w", err)
	}
	time.Sleep(orders.Linger) // svc.Run has reported the end; the process stays.
	return nil
}

type service struct{ order.Orders }

// Execute is svc.Handler.
func (s service) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (ownCode bool, exitCode uint32) {
	var crash <-chan time.Time
	if s.Crash > 0 {
		crash = time.After(s.Crash)
	}
	status <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	for {
		select {
		case <-crash:
			os.Exit(3)
		case r := <-requests:
			switch r.Cmd {
			case svc.Interrogate:
				status <- r.CurrentStatus
			case svc.Stop, svc.Shutdown:
				status <- svc.Status{State: svc.StopPending}
				return false, 0
			}
		}
	}
}
