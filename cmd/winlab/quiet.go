package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/scene"
)

type quietFigures struct {
	Seconds float64 `json:"seconds"`
	// OperatorWrites counts the operator's writes, without the leader's lease. OperatorLeaseWrites counts writes of
	// this lease.
	OperatorWrites      int `json:"operatorWrites"`
	OperatorLeaseWrites int `json:"operatorLeaseWrites"`
	// DaemonRequests counts all requests of all daemons. The restart of a watch that ended counts as one request.
	DaemonRequests  int   `json:"daemonRequests"`
	DaemonWrites    int   `json:"daemonWrites"`
	NodeLeaseWrites int   `json:"nodeLeaseWrites"`
	ProcessStarts   int64 `json:"processStarts"`
	// Processor is how many processors each program used on average. All hosts run in the program winlab.
	Processor map[string]float64 `json:"processors,omitempty"`
}

func listen(ctx context.Context, s *scene.Scene, d time.Duration) (q quietFigures, err error) {
	starts, began := startsOf(s.Fleet.Hosts), time.Now()
	used, err := processorTimes()
	if err != nil {
		return q, err
	}
	if err = sleep(ctx, d); err != nil {
		return q, err
	}
	spent, err := spentSince(used)
	if err != nil {
		return q, err
	}
	q = quietFigures{Seconds: time.Since(began).Seconds(), ProcessStarts: startsOf(s.Fleet.Hosts) - starts,
		Processor: map[string]float64{}}
	for program, all := range spent {
		q.Processor[program] = all.Seconds() / q.Seconds
	}
	for r, err := range cluster.Requests(s.Cluster.AuditLog) {
		if err != nil {
			return q, fmt.Errorf("reading the audit log: %w", err)
		}
		if r.Received.After(began) {
			q.count(r)
		}
	}
	return q, nil
}

func (q *quietFigures) count(r cluster.Request) {
	lease := r.Resource == "leases"
	switch whose(r) {
	case operator:
		switch {
		case r.IsWrite() && lease:
			q.OperatorLeaseWrites++
		case r.IsWrite():
			q.OperatorWrites++
		}
	case daemons:
		q.DaemonRequests++
		if r.IsWrite() {
			q.DaemonWrites++
		}
	case kubelets:
		if r.IsWrite() && lease {
			q.NodeLeaseWrites++
		}
	}
}

type who int

const (
	others who = iota
	operator
	daemons
	kubelets
	attendants // the services of hosts that join by themselves
)

func whose(r cluster.Request) who {
	switch {
	case strings.HasSuffix(r.User, ":"+contract.OperatorServiceAccount):
		return operator
	case strings.HasPrefix(r.User, contract.DaemonUserPrefix):
		return daemons
	case strings.HasPrefix(r.User, contract.HostUserPrefix),
		r.Resource == "services" && r.Subresource == "proxy":
		return attendants
	case strings.HasPrefix(r.User, contract.KubeletUserPrefix),
		r.User == contract.BootstrapUser(contract.OperatorNamespace):
		return kubelets
	}
	return others
}
