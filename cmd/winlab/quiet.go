package main

import (
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// count sorts a request by who made it.
func (q *quietFigures) count(r cluster.Request) {
	lease := r.Resource == "leases"
	switch {
	case strings.HasSuffix(r.User, ":"+contract.OperatorServiceAccount):
		switch {
		case r.IsWrite() && lease:
			q.OperatorLeaseWrites++
		case r.IsWrite():
			q.OperatorWrites++
		}
	case strings.HasPrefix(r.User, contract.DaemonUserPrefix):
		q.DaemonRequests++
		if r.IsWrite() {
			q.DaemonWrites++
		}
	case strings.HasPrefix(r.User, contract.KubeletUserPrefix) && r.IsWrite() && lease:
		q.NodeLeaseWrites++
	}
}
