package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
)

// preflight plants the daemon and asks it what it finds. It changes nothing else on the host.
func (w *Walker) preflight(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) Outcome {
	desired, facts, err := w.revision(ctx, instance)
	if err != nil {
		return waitForCluster(err)
	}
	daemon, err := w.plant(ctx, visit)
	if err != nil {
		return Fail(err)
	}
	request := contract.PreflightRequest{
		Time: w.Now(), Blobs: blobs(desired.Manifest), Daemon: daemon.Digest, Hostname: instance.Spec.Hostname,
		NodeIP:   instance.Spec.NodeIP,
		NodeName: facts.Platform.NodeName(),
	}
	found, err := call[contract.PreflightAnswer](ctx, visit.conn, contract.VerbPreflight, request)
	if err != nil {
		return Fail(err)
	}
	if outcome := w.recognise(instance, found.Facts); !outcome.IsDone() {
		return outcome
	}
	if len(found.Problems) > 0 {
		return Fail(joined(found.Problems))
	}
	visit.found = &found
	return Done()
}

// plant leaves the daemon's binary on the host.
func (w *Walker) plant(ctx context.Context, visit *Visit) (contract.Blob, error) {
	file, ok := w.Payload.Manifest().Named(contract.ServiceDaemon + ".exe")
	if !ok {
		return contract.Blob{}, contract.NewProblem(contract.ReasonPayloadMissing, "the payload has no %s.exe",
			contract.ServiceDaemon)
	}
	selected, err := w.Payload.Select([]contract.Blob{file.Blob()})
	if err != nil {
		return contract.Blob{}, err
	}
	if _, err = visit.conn.Plant(ctx, host.Blob(selected[0])); err != nil {
		return contract.Blob{}, fmt.Errorf("planting the daemon: %w", err)
	}
	return file.Blob(), nil
}

// recognise writes down who the host is, and makes sure that no other instance is the same host.
func (w *Walker) recognise(instance *v1alpha1.WindowsInstance, facts contract.HostFacts) Outcome {
	if since := instance.Status.RebootTime; since != nil {
		if instance.Status.Host != nil && instance.Status.Host.BootID == facts.BootID {
			if w.Now().Sub(since.Time) > rebootLimit {
				instance.Status.RebootTime = nil // whatever stopped it, the next attempt asks again
				return Fail(contract.NewProblem(contract.ReasonRebootNotProven,
					"still in the boot in which the reboot was asked for"))
			}
			return Wait(rebootRetry, contract.ReasonRebooting, "the reboot has not begun yet")
		}
		instance.Status.RebootTime = nil
	}
	instance.Status.Host = &v1alpha1.HostInfo{
		Hostname: facts.Hostname, MachineID: facts.MachineID, BootID: facts.BootID, ProductName: facts.ProductName,
		Build: fmt.Sprintf("10.0.%d.%d", facts.Build, facts.UBR), NodeIP: facts.NodeIP,
	}
	name := nodeName(instance, facts)
	if name == "" {
		return Fail(contract.NewProblem(contract.ReasonHostnameInvalid, "the host has no name"))
	}
	if instance.Status.NodeName != "" && instance.Status.NodeName != name && instance.Status.NodeUID != "" {
		return Fail(contract.NewProblem(contract.ReasonHostnameInvalid,
			"the host was renamed from %q to %q after it had become a node", instance.Status.NodeName, name))
	}
	by := Claimant{UID: instance.UID, Key: types.NamespacedName{Namespace: instance.Namespace, Name: instance.Name},
		MachineID: facts.MachineID}
	if owner, ok := w.Claims.Claim(name, by); !ok {
		if owner.MachineID == facts.MachineID {
			return Fail(contract.NewProblem(contract.ReasonHostDuplicate,
				"%s, which calls itself %q, is the host that instance %s has already, or a copy of its disk",
				instance.Spec.Address, name, owner.Key.Name))
		}
		return Fail(contract.NewProblem(contract.ReasonHostDuplicate, "another host, instance %s, already is called %q",
			owner.Key.Name, name))
	}
	instance.Status.NodeName = name
	return Done()
}

// nodeName is what the Node of a host will be called: the name that the host is to be given, else
// the one that it has.
func nodeName(instance *v1alpha1.WindowsInstance, facts contract.HostFacts) string {
	return strings.ToLower(cmp.Or(instance.Spec.Hostname, facts.NodeName, facts.Hostname))
}

// prepare sets what needs a reboot, and sends the host into it.
func (w *Walker) prepare(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) Outcome {
	if visit.found == nil {
		return restart()
	}
	if len(visit.found.NeedsPrepare) == 0 {
		return Done()
	}
	answer, err := call[contract.PrepareAnswer](ctx, visit.conn, contract.VerbPrepare,
		contract.PrepareRequest{Hostname: instance.Spec.Hostname})
	if err != nil {
		return Fail(err)
	}
	if !answer.Rebooting {
		return Done()
	}
	now := metav1.NewTime(w.Now())
	instance.Status.RebootTime = &now
	instance.Status.Host.BootID = answer.BootID
	needs := strings.Join(visit.found.NeedsPrepare, ", ")
	visit.End()
	w.Slots.Release(instance.UID)
	return Wait(rebootRetry, contract.ReasonRebooting, "rebooting for: %s", needs)
}

// joined makes one problem of several: the first one's reason, everybody's detail.
func joined(problems []contract.Problem) *contract.Problem {
	details := make([]string, len(problems))
	for i := range problems {
		details[i] = problems[i].Detail
		if i > 0 {
			details[i] = problems[i].Error()
		}
	}
	return &contract.Problem{Reason: problems[0].Reason, Detail: strings.Join(details, "; ")}
}

// call runs a verb and unwraps its answer.
func call[T any](ctx context.Context, conn host.Conn, verb contract.Verb, request any) (T, error) {
	var answer contract.Answer[T]
	if err := conn.Call(ctx, verb, request, &answer); err != nil {
		return answer.Result, fmt.Errorf("calling %s: %w", verb, err)
	}
	if answer.Problem != nil {
		return answer.Result, answer.Problem
	}
	return answer.Result, nil
}

// waitForCluster waits for what only the cluster's administrator can mend; hosts are not to blame,
// so it is no failure of theirs.
func waitForCluster(err error) Outcome {
	if problem, ok := contract.AsProblem(err); ok {
		return WaitEndless(keyRetry, problem.Reason, "%s", problem.Detail)
	}
	return retry(err)
}

// restart answers a phase that was entered without what the phases before it learn.
func restart() Outcome {
	return Fail(errors.New("the visit lost what preflight had found"))
}

// blobs lists what a manifest's files hold, each digest once.
func blobs(m contract.Manifest) []contract.Blob {
	seen := map[string]bool{}
	list := []contract.Blob{}
	for _, f := range m.Files {
		if f.Digest != "" && !seen[f.Digest] {
			seen[f.Digest] = true
			list = append(list, contract.Blob{Digest: f.Digest, Size: f.Size})
		}
	}
	return list
}
