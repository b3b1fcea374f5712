package main

import (
	"context"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

// row is one host at one moment.
type row struct {
	// name of the instance: see scene.NameOf. It is the name of the Machine if there is one.
	name     string
	machine  *machinev1beta1.Machine   // nil for an initial host
	host     *fleet.Host               // nil until the Machine has a host
	instance *v1alpha1.WindowsInstance // nil until it is created
}

// look reads initial hosts and Machines.
func look(ctx context.Context, s *scene.Scene) ([]row, error) {
	rows := []row{}
	for _, h := range s.Fleet.Hosts {
		rows = append(rows, row{name: scene.NameOf(h), host: h})
	}
	if s.Cloud != nil {
		machines, err := s.Machines(ctx, machineSet)
		if err != nil {
			return nil, err
		}
		for i := range machines {
			host, _ := s.Cloud.Host(machines[i].Name)
			rows = append(rows, row{name: machines[i].Name, machine: &machines[i], host: host})
		}
	}
	for i := range rows {
		instance, err := s.InstanceNamed(ctx, rows[i].name)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil {
			rows[i].instance = instance
		}
	}
	return rows, nil
}

// phase returns the phase of the instance. Without an instance, it returns the Machine's phase.
func (r row) phase() string {
	switch {
	case r.instance != nil:
		return string(r.instance.Status.Phase)
	case r.machine != nil:
		return ptr.Deref(r.machine.Status.Phase, "-")
	}
	return "-"
}

// source returns whether the host was listed, joins by itself, or belongs to a Machine.
func (r row) source() string {
	switch {
	case r.machine != nil:
		return string(v1alpha1.SourceMachine)
	case r.host.Server == nil:
		return "ByItself"
	}
	return string(v1alpha1.SourceConfigMap)
}

// got reports whether the host is in its final state: Ready, and Running for its Machine.
func (r row) got() bool {
	ready := r.instance != nil && r.instance.Status.Phase == v1alpha1.PhaseReady
	return ready && (r.machine == nil || ptr.Deref(r.machine.Status.Phase, "") == machinev1beta1.PhaseRunning)
}

// allSettled reports whether each host is in its final state, or failed at least twice for the same reason.
func allSettled(rows []row) bool {
	const enough = 2
	for _, r := range rows {
		if !r.got() && (r.instance == nil || r.instance.Status.Failures < enough) {
			return false
		}
	}
	return true
}
