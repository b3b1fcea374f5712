package program

import (
	"context"

	"github.com/windows-nodes/wmco/lab/sim"
)

// csiProxy waits for connections of storage drivers. In the lab, none connects.
func csiProxy(ctx context.Context, p *sim.Process) int {
	flags := newFlags("csi-proxy")
	log := flags.String("log_file", "", "")
	tolerate(flags, "windows-service logtostderr alsologtostderr",
		"log_file_max_size kubelet-path working-dir v vmodule stderrthreshold")
	if err := parse(flags, doubleDashes(p.Args[1:])); err != nil {
		return refuse(p, err)
	}
	return idle{name: "csi-proxy", logFile: *log}.run(ctx, p)
}
