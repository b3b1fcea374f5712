package main

import (
	"context"
	"errors"

	"golang.org/x/sys/windows/svc"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func serve() { _ = svc.Run(contract.ServiceDaemon, service{}) }

type service struct{}

// Execute implements svc.Handler.
func (service) Execute(_ []string, _ <-chan svc.ChangeRequest, status chan<- svc.Status) (specific bool, code uint32) {
	status <- svc.Status{State: svc.Running}
	ctx, host := context.Background(), winos.New()
	digest, err := apply.DigestOf(ctx, host.Files, contract.PathDaemon)
	stateFile, unread := state.Read(host.Files)
	if err == nil && unread == nil {
		_ = selfupdate.New(host, stateFile, digest).Run(ctx, func(context.Context) error { return errors.New("crashed") })
	}
	return true, 1
}
