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
	// name of the instance: the address of a listed host, or the name of the Machine.
	name     string
	machine  *machinev1beta1.Machine   // nil for a listed host
	host     *fleet.Host               // nil before a Machine has one
	instance *v1alpha1.WindowsInstance // nil before it is made
}

// look reads listed hosts and Machines.
func look(ctx context.Context, s *scene.Scene) ([]row, error) {
	rows := []row{}
	for _, h := range s.Fleet.Hosts {
		rows = append(rows, row{name: h.Address().Addr().String(), host: h})
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

// phase of the instance, or of the Machine as long as there is none.
func (r row) phase() string {
	switch {
	case r.instance != nil:
		return string(r.instance.Status.Phase)
	case r.machine != nil:
		return ptr.Deref(r.machine.Status.Phase, "-")
	}
	return "-"
}

// source says how the host came in.
func (r row) source() string {
	if r.machine != nil {
		return string(v1alpha1.SourceMachine)
	}
	return string(v1alpha1.SourceConfigMap)
}

// got says whether the host is where it was meant to be: Ready, and known to its Machine.
func (r row) got() bool {
	ready := r.instance != nil && r.instance.Status.Phase == v1alpha1.PhaseReady
	return ready && (r.machine == nil || ptr.Deref(r.machine.Status.Phase, "") == machinev1beta1.PhaseRunning)
}

// allSettled says whether each host is where it can get: there, or failed at least twice for the
// same reason.
func allSettled(rows []row) bool {
	const enough = 2
	for _, r := range rows {
		if !r.got() && (r.instance == nil || r.instance.Status.Failures < enough) {
			return false
		}
	}
	return true
}
