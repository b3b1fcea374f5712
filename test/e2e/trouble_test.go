package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

func TestA08_EachTroubleHasItsReasonAndDelaysNobody(t *testing.T) {
	t.Parallel()
	faults := []fleet.Fault{
		fleet.FaultAuth, fleet.FaultUnreachable, fleet.FaultHung, fleet.FaultHostKey, fleet.FaultBuild, fleet.FaultDisk,
		fleet.FaultClock, fleet.FaultHostname, fleet.FaultPort,
	}
	o := options(len(faults) + 2)
	o.Hosts.Faults = faults
	s := own(t, o)
	s.addRaw(t, map[string]string{"does-not-resolve.invalid": "username=Administrator"})
	began := time.Now()
	s.add(t, s.Fleet.Hosts...)
	if err := s.WaitReady(t.Context(), soon, s.Fleet.Hosts[len(faults):]...); err != nil {
		t.Fatal(err)
	}
	healthy := time.Since(began)
	t.Logf("the healthy hosts were Ready after %s", healthy.Round(time.Millisecond))
	for _, h := range s.Fleet.Hosts[:len(faults)] {
		want := h.Fault.Reason()
		s.await(t, string("the reason of "+h.Fault), func(ctx context.Context) (bool, string, error) {
			i, err := s.Instance(ctx, h)
			if err != nil {
				return false, "", err
			}
			state := fmt.Sprintf("%s: %s %s", h.Fault, i.Status.Reason(), i.Status.Message())
			return i.Status.Reason() == string(want) && strings.Contains(i.Status.Message(), fmt.Sprintf("(W%d ", want.Number())) &&
				fixOf(i) != "" && i.Status.Failures > 0, state, nil
		})
	}
	s.await(t, "the reason of the name that does not resolve", func(ctx context.Context) (bool, string, error) {
		i := &v1alpha1.WindowsInstance{}
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.OperatorNamespace,
			Name: "does-not-resolve.invalid"}, i)
		return i.Status.Reason() == string(contract.ReasonAddressUnresolvable), i.Status.Reason() + " " + i.Status.Message(),
			err
	})
	// The limit depends on the time that healthy hosts needed, because on a busy machine everything is slower.
	if took := time.Since(began); took > max(time.Minute, 10*healthy) {
		t.Errorf("the operator needed %s to report the reasons, want at most a minute", took)
	}
	for _, h := range s.Fleet.Hosts[:len(faults)] {
		if h.Fault == fleet.FaultHostname {
			continue // only the host's administrator can rename a host, and this needs a reboot
		}
		if h.Fault == fleet.FaultHostKey {
			i := s.instance(t, h)
			patch := client.MergeFrom(i.DeepCopy())
			h.Fault = fleet.FaultNone
			i.Spec.HostKey = ""
			s.add(t, h)
			if err := s.Client.Patch(t.Context(), i, patch); err != nil {
				t.Fatal(err)
			}
			continue
		}
		h.Mend()
		s.retryNow(t, h)
	}
	for _, h := range s.Fleet.Hosts[:len(faults)] {
		if h.Fault != fleet.FaultHostname {
			s.ready(t, h)
		}
	}
}

// retryNow causes an immediate retry, as a user does who has repaired a host. Any change of the spec has this effect.
func (s *stage) retryNow(t *testing.T, h *fleet.Host) {
	t.Helper()
	i := s.instance(t, h)
	patch := client.MergeFrom(i.DeepCopy())
	i.Spec.Labels = map[string]string{"mended": "true"}
	if err := s.Client.Patch(t.Context(), i, patch); err != nil {
		t.Fatal(err)
	}
}

func TestA09_TheHostKeyOfTheFirstContactIsPinned(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	pinned := s.instance(t, hosts[0]).Status.HostKey
	if pinned == "" {
		t.Fatal("the operator did not pin the host's key")
	}
	other, err := sshd.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	hosts[0].Server.Change(func(o *sshd.Settings) { o.HostKey = other })
	// If someone deletes the Node, the host joins again. The pinned key must still be required.
	if err = s.Client.Delete(t.Context(), s.node(t, hosts[0])); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the other key to be refused", func(ctx context.Context) (bool, string, error) {
		i, err := s.Instance(ctx, hosts[0])
		if err != nil {
			return false, "", err
		}
		return i.Status.Reason() == string(contract.ReasonHostKeyMismatch) &&
			i.Status.HostKey == pinned, i.Status.Reason() + " " + i.Status.Message(), nil
	})
	// The user's key overrides the pinned key.
	i := s.instance(t, hosts[0])
	patch := client.MergeFrom(i.DeepCopy())
	i.Spec.HostKey = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(other.PublicKey())))
	if err = s.Client.Patch(t.Context(), i, patch); err != nil {
		t.Fatal(err)
	}
	s.ready(t, hosts...)
	if now := s.instance(t, hosts[0]).Status.HostKey; now == pinned {
		t.Error("the operator did not pin the new key")
	}
}

func TestA10_BadEntriesHaveReasonsAndOthersProceed(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	s.addRaw(t, map[string]string{"10.99.0.1": "Administrator", "10.99.0.2": "username=", "not_a_name": "username=a",
		"300.1.1.1": "username=a"})
	s.join(t, hosts...)
	s.await(t, "the rejected entries to be listed", func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		if err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
			return false, "", err
		}
		codes := map[string]string{}
		for _, r := range config.Status.RejectedEntries {
			codes[r.Key] = r.Code
		}
		return codes["10.99.0.1"] == "W101" && codes["10.99.0.2"] == "W113" && codes["not_a_name"] == "W101" &&
			codes["300.1.1.1"] == "W101", fmt.Sprint(codes), nil
	})
	events := &corev1.EventList{}
	s.await(t, "an event on the ConfigMap", func(ctx context.Context) (bool, string, error) {
		if err := s.Client.List(ctx, events, client.InNamespace(contract.OperatorNamespace)); err != nil {
			return false, "", err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == contract.InstancesConfigMap && e.Reason == "InstanceSetupFailure" &&
				strings.Contains(e.Message, "W101") {
				return true, "", nil
			}
		}
		return false, fmt.Sprintf("%d events", len(events.Items)), nil
	})
}

func TestA10_AnEntryThatBecomesUnreadableKeepsItsNode(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	key, _ := hosts[0].Entry()
	uid := s.instance(t, hosts[0]).UID
	s.addRaw(t, map[string]string{key: "oops"})
	s.await(t, "the entry to be rejected", func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
		for _, r := range config.Status.RejectedEntries {
			if r.Key == key {
				return true, "", nil
			}
		}
		return false, "", err
	})
	if i := s.instance(t, hosts[0]); i.UID != uid || !i.DeletionTimestamp.IsZero() {
		t.Error("a typing error in the entry removed the node")
	}
	s.add(t, hosts...)
}

func TestA10_OneHostUnderTwoNamesIsJoinedOnce(t *testing.T) {
	t.Parallel()
	o := options(1)
	s := own(t, o)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	// The new process must know which instance has which host before it joins any host.
	s.killed(t, 1, func() time.Duration { return 0 })
	// The user adds the same host directly, under its second address.
	double := &v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "double"},
		Spec: v1alpha1.WindowsInstanceSpec{Address: hosts[0].Address().Addr().String(),
			Port: int32(hosts[0].Address().Port()), Username: "administrator"},
	}
	if err := s.Client.Create(t.Context(), double); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the duplicate instance to be refused", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(double), double)
		return double.Status.Reason() == string(contract.ReasonHostDuplicate),
			double.Status.Reason() + " " + double.Status.Message(), err
	})
	// Removing the double must not touch the host that is in use.
	if err := s.Client.Delete(t.Context(), double); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the duplicate instance to be deleted", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(double), double)
		return err != nil, double.Status.Reason() + " " + double.Status.Message(), client.IgnoreNotFound(err)
	})
	s.ready(t, hosts...)
	if node := s.node(t, hosts[0]); node.Spec.Unschedulable {
		t.Error("removing the duplicate instance cordoned the host's node")
	}
	if state, err := hosts[0].Machine.Host().Services.Get(t.Context(), contract.ServiceKubelet); err != nil ||
		state.State != "Running" {
		t.Errorf("removing the duplicate instance stopped kubelet: %v %v", state.State, err)
	}
}

func TestADamagedTransferIsFoundAndResumed(t *testing.T) {
	s := sharedStage(t)
	for name, fault := range map[string]sshd.Faults{
		"one byte of the stream is damaged": {Corrupt: &sshd.Corrupt{At: 9000, Times: 1}},
		"the connection breaks on the way":  {Drop: &sshd.Drop{After: 30000, Times: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			hosts := s.hosts(t, 1)
			hosts[0].Server.Change(func(o *sshd.Settings) { o.Faults = fault })
			s.join(t, hosts...)
		})
	}
}

func TestAHostThatNeedsAFeatureIsPreparedAndRebooted(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	hosts[0].Machine.SetFeature("Containers", winos.FeatureAbsent)
	before := bootID(t, hosts[0])
	s.join(t, hosts...)
	if bootID(t, hosts[0]) == before {
		t.Error("the host became a node without the reboot that the feature needs")
	}
}

// On this host, the feature stays pending after every boot. The operator must reboot the host at most three times, and
// the status must report the problem.
func TestAHostThatRebootsInVainIsRebootedThreeTimesAndSaysSo(t *testing.T) {
	s := sharedStage(t)
	h := s.hosts(t, 1)[0]
	h.Machine.SetForgetful(true)
	h.Machine.SetFeature("Containers", winos.FeatureAbsent)
	boots := map[string]bool{bootID(t, h): true}
	s.add(t, h)
	s.await(t, "an end of the reboots", func(ctx context.Context) (bool, string, error) {
		boots[bootID(t, h)] = true
		i, err := s.Instance(ctx, h)
		if err != nil {
			return false, "", client.IgnoreNotFound(err)
		}
		return i.Status.Reason() == string(contract.ReasonRebootIneffective) && fixOf(i) != "" &&
			i.Status.Failures > 0, i.Status.Reason() + " " + i.Status.Message(), nil
	})
	s.await(t, "an event", func(ctx context.Context) (bool, string, error) {
		boots[bootID(t, h)] = true
		list := &eventsv1.EventList{}
		err := s.Client.List(ctx, list, client.InNamespace(contract.OperatorNamespace))
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Name == s.instance(t, h).Name && e.Type == corev1.EventTypeWarning &&
				strings.Contains(e.Note, string(contract.ReasonRebootIneffective))
		}), fmt.Sprintf("%d events", len(list.Items)), err
	})
	if len(boots) > 4 {
		t.Errorf("the host was booted %d times, want the first boot and three reboots", len(boots))
	}
	s.drop(t, h)
	s.gone(t, h)
}

// bootID returns the ID of a host's current boot.
func bootID(t *testing.T, h *fleet.Host) string {
	t.Helper()
	facts, err := h.Machine.Host().System.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return facts.BootID
}
