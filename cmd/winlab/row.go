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

type row struct {
	// name is the name of the host's Machine or, without a Machine, of its instance: see scene.NameOf.
	name     string
	machine  *machinev1beta1.Machine   // nil if the host has no Machine
	host     *fleet.Host               // nil until the Machine has a host
	instance *v1alpha1.WindowsInstance // nil until the instance is created
}

// look reads the state of all hosts: the hosts that the scene started with, and the hosts of Machines.
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

// phase returns the phase of the instance. If there is no instance yet, it returns the phase of the Machine.
func (r row) phase() string {
	switch {
	case r.instance != nil:
		return string(r.instance.Status.Phase)
	case r.machine != nil:
		return ptr.Deref(r.machine.Status.Phase, "-")
	}
	return "-"
}

// source returns how the host was added: by a Machine, by itself, or by an entry in the ConfigMap.
func (r row) source() string {
	switch {
	case r.machine != nil:
		return string(v1alpha1.SourceMachine)
	case r.host.Server == nil:
		return "ByItself"
	}
	return string(v1alpha1.SourceConfigMap)
}

// got reports whether the host has joined: its instance is Ready, and its Machine, if any, is Running.
func (r row) got() bool {
	ready := r.instance != nil && r.instance.Status.Phase == v1alpha1.PhaseReady
	return ready && (r.machine == nil || ptr.Deref(r.machine.Status.Phase, "") == machinev1beta1.PhaseRunning)
}

// allSettled reports whether each host has joined or has failed at least twice.
func allSettled(rows []row) bool {
	const enough = 2
	for _, r := range rows {
		if !r.got() && (r.instance == nil || r.instance.Status.Failures < enough) {
			return false
		}
	}
	return true
}
