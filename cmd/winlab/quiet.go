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

// quietFigures are what happens while nothing happens.
type quietFigures struct {
	Seconds float64 `json:"seconds"`
	// OperatorWrites leaves the leader's lease out; that is counted by itself.
	OperatorWrites      int `json:"operatorWrites"`
	OperatorLeaseWrites int `json:"operatorLeaseWrites"`
	// DaemonRequests are all requests of all daemons. A watch that ends and begins anew is one.
	DaemonRequests int `json:"daemonRequests"`
	DaemonWrites   int `json:"daemonWrites"`
	// NodeLeaseWrites are the kubelets' own.
	NodeLeaseWrites int `json:"nodeLeaseWrites"`
	// ProcessStarts on all hosts.
	ProcessStarts int64 `json:"processStarts"`
	// Processor is which part of one each program takes. winlab is all hosts.
	Processor map[string]float64 `json:"processors,omitempty"`
}

// listen counts for a while.
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

// count sorts a request by who made it.
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

// who makes requests.
type who int

const (
	others who = iota
	operator
	daemons
	kubelets
)

func whose(r cluster.Request) who {
	switch {
	case strings.HasSuffix(r.User, ":"+contract.OperatorServiceAccount):
		return operator
	case strings.HasPrefix(r.User, contract.DaemonUserPrefix):
		return daemons
	case strings.HasPrefix(r.User, contract.KubeletUserPrefix),
		r.User == contract.BootstrapUser(contract.OperatorNamespace):
		return kubelets
	}
	return others
}
