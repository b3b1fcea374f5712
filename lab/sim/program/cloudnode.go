package program

import (
	"context"
	"errors"
	"fmt"

	"github.com/windows-nodes/wmco/lab/sim"
)

// cloudNode has no cloud to ask.
func cloudNode(ctx context.Context, p *sim.Process) int {
	flags := newFlags("azure-cloud-node-manager")
	node := flags.String("node-name", "", "")
	kubeconfig := flags.String("kubeconfig", "", "")
	tolerate(flags, "windows-service wait-routes use-instance-metadata", "cloud-config v node-status-update-frequency")
	if err := parse(flags, p.Args[1:]); err != nil {
		return refuse(p, err)
	}
	if *node == "" {
		return refuse(p, errors.New("node-name must be specified"))
	}
	if _, err := loadKubeconfig(p.Host.Files, *kubeconfig); err != nil {
		return refuse(p, fmt.Errorf("building a client: %w", err))
	}
	return idle{name: "azure-cloud-node-manager"}.run(ctx, p)
}
