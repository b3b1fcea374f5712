package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/cloud"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

func TestTwoMachinesHaveOneAddress(t *testing.T) {
	s := cloudStage(t)
	s.set(t, "first", 1)
	first := s.running(t, "first", 1)[0]
	s.set(t, "second", 1, func(set *machinev1beta1.MachineSet) {
		set.Spec.Template.Annotations[cloud.AddressAnnotation] = first.Status.Addresses[0].Address
	})
	var second machinev1beta1.Machine
	s.await(t, "the second machine to have the address", func(ctx context.Context) (bool, string, error) {
		machines, err := s.Machines(ctx, "second")
		if len(machines) == 1 {
			second = machines[0]
		}
		return len(second.Status.Addresses) > 0, "", err
	})
	s.told(t, &second, "MachineSetupFailure", string(contract.ReasonAddressDuplicate))
	if i, err := s.InstanceNamed(t.Context(), second.Name); err == nil {
		t.Errorf("the second machine has an instance: %s", i.Status.Message())
	}
	s.same(t, "first", []machinev1beta1.Machine{first})
	// Deleting the second Machine must not affect the first.
	if err := s.Client.Delete(t.Context(), &second); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitMachineGone(t.Context(), soon, &second); err != nil {
		t.Fatal(err)
	}
	s.same(t, "first", []machinev1beta1.Machine{first})
}

// A user writes an invalid annotation several times. There must be one event with a count, and the node must stay.
func TestAMachinesAnnotationIsNotUnderstood(t *testing.T) {
	s := cloudStage(t)
	s.set(t, "mistaken", 1)
	m := s.running(t, "mistaken", 1)[0]
	ports := []string{"ssh", strconv.Itoa(cloud.SSHPort)}
	s.await(t, "the event to be counted", func(ctx context.Context) (bool, string, error) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, contract.SSHPortAnnotation, ports[0])
		if err := s.Client.Patch(ctx, m.DeepCopy(), merge(patch)); err != nil {
			return false, "", err
		}
		slices.Reverse(ports)
		list := &eventsv1.EventList{}
		err := s.Client.List(ctx, list, client.InNamespace(m.Namespace))
		counted := func(e eventsv1.Event) bool {
			return e.Regarding.Name == m.Name && e.Action == "Read"+string(contract.ReasonMachineAnnotationInvalid) &&
				e.Series != nil && e.Series.Count > 1
		}
		return slices.ContainsFunc(list.Items, counted), "", err
	})
	s.same(t, "mistaken", []machinev1beta1.Machine{m})
}

func TestAMachineAnswersAsAnotherHost(t *testing.T) {
	s := cloudStage(t)
	s.set(t, "genuine", 1)
	genuine := s.running(t, "genuine", 1)[0]
	i := s.named(t, &genuine)
	linux := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "control-plane-0",
		Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	s.put(t, linux)
	tests := map[string]struct {
		hostname, machineID string
		reasons             []contract.Reason
	}{
		"a-copy": {i.Status.Host.Hostname, i.Status.Host.MachineID,
			[]contract.Reason{contract.ReasonHostDuplicate}},
		"a-namesake": {genuine.Status.NodeRef.Name, "",
			[]contract.Reason{contract.ReasonHostDuplicate, contract.ReasonNodeForeign}},
		"a-pretender": {linux.Name, "", []contract.Reason{contract.ReasonNodeForeign}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := s.lone(t, name, func(m *machinev1beta1.Machine) {
				m.Annotations[cloud.HostnameAnnotation], m.Annotations[cloud.MachineIDAnnotation] = test.hostname,
					test.machineID
			})
			s.await(t, "the operator to detect the fake Machine", func(ctx context.Context) (bool, string, error) {
				i, err := s.InstanceNamed(ctx, m.Name)
				if err != nil {
					return false, "no instance", client.IgnoreNotFound(errors.Unwrap(err))
				}
				return slices.Contains(test.reasons, contract.Reason(i.Status.Reason())),
					i.Status.Reason() + " " + i.Status.Message(), nil
			})
		})
	}
	s.same(t, "genuine", []machinev1beta1.Machine{genuine})
	again := &corev1.Node{}
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(linux), again); err != nil ||
		again.UID != linux.UID || again.Spec.Unschedulable {
		t.Errorf("the control plane's Node was changed: %+v, %v", again, err)
	}
	for key := range again.Annotations {
		if strings.HasPrefix(key, contract.Prefix) {
			t.Errorf("the control plane's Node has the annotation %s", key)
		}
	}
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := s.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, csr := range list.Items {
		if about(csr, linux.Name) && len(csr.Status.Certificate) > 0 {
			t.Errorf("the request %s of a machine that uses the control plane's name was signed", csr.Name)
		}
	}
}

func TestAMachineSetIsScaledToZeroInMidJoin(t *testing.T) {
	s := cloudStage(t)
	s.set(t, "zero", 4)
	machines := s.booted(t, "zero", 4)
	for _, m := range machines {
		s.host(t, &m).Server.Change(func(o *sshd.Settings) { o.Latency = 100 * time.Millisecond })
	}
	s.await(t, "some hosts to be joining", func(ctx context.Context) (bool, string, error) {
		under := 0
		for _, m := range machines {
			i, err := s.InstanceNamed(ctx, m.Name)
			if err != nil {
				return false, "", client.IgnoreNotFound(errors.Unwrap(err))
			}
			if i.Status.HostKey != "" && i.Status.Phase != v1alpha1.PhaseReady {
				under++
			}
		}
		return under > 0, fmt.Sprintf("%d joins are under way", under), nil
	})
	machines = s.machines(t, "zero") // read them again: a Machine gets its address later than its host boots
	began := time.Now()
	if err := s.Scale(t.Context(), nil, "zero", -4); err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		if err := s.WaitMachineGone(t.Context(), soon, &m); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("all machines were gone after %s", time.Since(began).Round(time.Millisecond))
	nodes := &corev1.NodeList{}
	// If a Node was registered after its WindowsInstance was deleted, the operator deletes the Node after it has not
	// been Ready for a while.
	limit := soon + 2*policy.OrphanGrace
	err := s.Await(t.Context(), limit, "their nodes to be gone", func(ctx context.Context) (bool, string, error) {
		if err := s.Client.List(ctx, nodes); err != nil {
			return false, "", err
		}
		left := []string{}
		for _, n := range nodes.Items {
			for _, m := range machines { // a Machine without an address has never joined
				if len(n.Status.Addresses) > 0 && len(m.Status.Addresses) > 0 &&
					n.Status.Addresses[0].Address == m.Status.Addresses[0].Address {
					left = append(left, n.Name)
				}
			}
		}
		return len(left) == 0, fmt.Sprint(left), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// The slots of the deleted Machines must be free again.
	s.set(t, "after", 1)
	s.running(t, "after", 1)
}

func TestThePrivateKeyIsMissingForAWhile(t *testing.T) {
	s := cloudStage(t)
	s.set(t, "patient", 1)
	before := s.running(t, "patient", 1)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace,
		Name: contract.PrivateKeySecret}}
	t.Cleanup(func() { s.settle(t) })
	for what, edit := range map[string]struct {
		data   map[string][]byte
		reason contract.Reason
	}{
		"no key in the secret": {map[string][]byte{"id_rsa": []byte("x")}, contract.ReasonPrivateKeyMissing},
		"an empty key":         {map[string][]byte{contract.PrivateKeyField: nil}, contract.ReasonPrivateKeyInvalid},
		"a key that is no key": {map[string][]byte{contract.PrivateKeyField: []byte("-----BEGIN NONSENSE-----")},
			contract.ReasonPrivateKeyInvalid},
	} {
		t.Run(what, func(t *testing.T) {
			text := s.userData(t, contract.MachineAPINamespace)
			wanted := secret.DeepCopy()
			wanted.Data = edit.data
			if err := s.Client.Update(t.Context(), wanted); err != nil {
				t.Fatal(err)
			}
			s.available(t, metav1.ConditionFalse, edit.reason)
			if s.userData(t, contract.MachineAPINamespace) != text {
				t.Error("the user data changed although there is no new key")
			}
			s.same(t, "patient", before)
			if err := s.PutKey(t.Context(), s.Key); err != nil {
				t.Fatal(err)
			}
			s.available(t, metav1.ConditionTrue, "")
		})
	}
	s.same(t, "patient", before)
}

func TestManyMachinesAtOnce(t *testing.T) {
	s := cloudStage(t)
	many := 30 // more than may join at the same time
	if os.Getenv("WMCO_TEST_ALL") != "" {
		many = 200
	}
	began := time.Now()
	s.set(t, "many", int32(many))
	// The limit is long, because each join takes more than a second of processor time, and other tests use the same
	// processor.
	if err := s.awaitRunning(t.Context(), 30*time.Minute, "many", many); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d machines became nodes within %s", many, time.Since(began).Round(time.Second))
	for _, m := range s.machines(t, "many") {
		if c := s.host(t, &m).Server.Counters(); c.Connections != 1 {
			t.Errorf("machine %s: %d connections", m.Name, c.Connections)
		}
	}
}

// available waits until the condition Available has a status and a reason.
func (s *stage) available(t *testing.T, status metav1.ConditionStatus, reason contract.Reason) {
	t.Helper()
	s.await(t, fmt.Sprintf("Available to be %s %s", status, reason), func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		if err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
			return false, "", err
		}
		c := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionAvailable)
		if c == nil {
			return false, "no condition", nil
		}
		return c.Status == status && (reason == "" || c.Reason == string(reason)),
			string(c.Status) + " " + c.Reason + " " + c.Message, nil
	})
}
