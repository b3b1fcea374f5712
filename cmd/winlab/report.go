package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// report is the content of out/demo.json.
type report struct {
	Instances []instanceReport `json:"instances"`
	Machines  []machineReport  `json:"machines,omitempty"`
	Removed   *removalReport   `json:"removed,omitempty"`
	// RemovedMachine is the Machine that the demo removed by scaling down its MachineSet.
	RemovedMachine *removalReport `json:"removedMachine,omitempty"`
	Seconds        float64        `json:"seconds"`
	// Wine says which programs were real. It is nil unless the hosts ran in Wine.
	Wine *wineReport `json:"wine,omitempty"`
}

type instanceReport struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Source  string `json:"source"`
	Phase   string `json:"phase"`
	Node    string `json:"node"`
	// Code, Reason and Message say why the host didn't become a node.
	Code         string             `json:"code,omitempty"`
	Reason       string             `json:"reason,omitempty"`
	Message      string             `json:"message,omitempty"`
	PhaseSeconds map[string]float64 `json:"phaseSeconds"`
	// SSH contains the counters of the host's SSH server at the end of the demo, before hosts are removed.
	SSH sshd.Counters `json:"ssh"`
}

type machineReport struct {
	Name       string `json:"name"`
	Phase      string `json:"phase"`
	ProviderID string `json:"providerID"`
	Node       string `json:"node"`
}

type removalReport struct {
	Name    string   `json:"name"`
	Clean   bool     `json:"clean"`
	Left    []string `json:"left,omitempty"`
	Seconds float64  `json:"seconds"`
}

// finish reports on each host. It removes one listed host and one Machine that became nodes, and reports the removals.
func (d *demo) finish(ctx context.Context, s *scene.Scene, out io.Writer) (report, []error) {
	var problems []error
	result := report{}
	rows, err := look(ctx, s)
	if err != nil {
		return result, []error{err}
	}
	var leaver *fleet.Host
	var surplus *machinev1beta1.Machine
	for _, r := range rows {
		entry, err := reportOn(r)
		problems = append(problems, err)
		result.Instances = append(result.Instances, entry)
		if r.machine != nil {
			result.Machines = append(result.Machines, reportOnMachine(r.machine))
		}
		switch {
		case err != nil:
		case r.machine != nil:
			surplus = r.machine
		default:
			leaver = r.host
		}
	}
	if leaver != nil {
		removal, err := remove(ctx, s, leaver, out)
		result.Removed = &removal
		problems = append(problems, err)
	}
	if surplus != nil {
		removal, err := removeMachine(ctx, s, surplus, out)
		result.RemovedMachine = &removal
		problems = append(problems, err)
	}
	return result, problems
}

func reportOnMachine(m *machinev1beta1.Machine) machineReport {
	entry := machineReport{Name: m.Name, Phase: ptr.Deref(m.Status.Phase, ""),
		ProviderID: ptr.Deref(m.Spec.ProviderID, "")}
	if m.Status.NodeRef != nil {
		entry.Node = m.Status.NodeRef.Name
	}
	return entry
}

// reportOn returns the report of a host. If the host didn't become a node, the error is the reason.
func reportOn(r row) (instanceReport, error) {
	entry := instanceReport{Name: r.name, Source: r.source(), PhaseSeconds: map[string]float64{}}
	if r.host != nil {
		entry.Address, entry.SSH = r.host.Address().Addr().String(), r.host.Counters()
	}
	if r.instance == nil {
		return entry, fmt.Errorf("host %s: no instance was made, it is in phase %s", r.name, r.phase())
	}
	status := r.instance.Status
	entry.Phase, entry.Node = string(status.Phase), status.NodeName
	for _, p := range status.Phases {
		entry.PhaseSeconds[string(p.Phase)] = seconds(p)
	}
	if r.got() {
		return entry, nil
	}
	if status.Phase == v1alpha1.PhaseReady {
		return entry, fmt.Errorf("host %s is a node, and its Machine does not know: it is in phase %s", r.name,
			ptr.Deref(r.machine.Status.Phase, "-"))
	}
	entry.Reason, entry.Message = status.Reason(), status.Message()
	entry.Code = contract.Reason(entry.Reason).Code()
	return entry, fmt.Errorf("host %s did not get there: %s", entry.Name, entry.Message)
}

// removalTimeout limits the time of a host's removal, which takes a minute for a host that joined by itself.
const removalTimeout = 2 * time.Minute

// remove removes a host from the cluster and checks that nothing remains on the host.
func remove(ctx context.Context, s *scene.Scene, leaver *fleet.Host, out io.Writer) (removalReport, error) {
	began := time.Now()
	result := removalReport{Name: scene.NameOf(leaver)}
	fmt.Fprintf(out, "\nremoving %s again\n", result.Name)
	if err := s.Remove(ctx, leaver); err != nil {
		return result, err
	}
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, removalTimeout, true,
		func(ctx context.Context) (bool, error) {
			_, err := s.Instance(ctx, leaver)
			if !apierrors.IsNotFound(err) {
				return false, err
			}
			result.Left = scene.Left(leaver)
			// A host that joined by itself removes its service one minute after its instance was deleted.
			return leaver.Server != nil || len(result.Left) == 0, nil
		})
	if err != nil && len(result.Left) == 0 {
		return result, fmt.Errorf("waiting for %s to leave: %w", result.Name, err)
	}
	result.Seconds = time.Since(began).Seconds()
	result.Clean = len(result.Left) == 0
	if !result.Clean {
		return result, errors.Join(fmt.Errorf("host %s is not clean", result.Name),
			fmt.Errorf("left behind: %v", result.Left))
	}
	fmt.Fprintf(out, "%s is clean, after %.1f s\n", result.Name, result.Seconds)
	return result, nil
}

// removeMachine scales the MachineSet down by one. It checks that the Machine and all its objects are deleted.
func removeMachine(ctx context.Context, s *scene.Scene, surplus *machinev1beta1.Machine, out io.Writer) (removalReport,
	error) {
	began := time.Now()
	result := removalReport{Name: surplus.Name}
	fmt.Fprintf(out, "\nmaking the MachineSet smaller by one\n")
	if err := s.Scale(ctx, surplus, machineSet, -1); err != nil {
		return result, err
	}
	if err := s.WaitMachineGone(ctx, time.Minute, surplus); err != nil {
		result.Left = []string{err.Error()}
		return result, err
	}
	result.Clean, result.Seconds = true, time.Since(began).Seconds()
	fmt.Fprintf(out, "Machine %s is gone, with its host, its node and its instance, after %.1f s\n", surplus.Name,
		result.Seconds)
	return result, nil
}
