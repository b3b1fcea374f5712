package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cloud"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

const (
	// platform of the scene with Machines. On AWS, the metadata service names the hosts, and the user data installs
	// their host keys.
	platform = configv1.AWSPlatformType
	// cloudHosts is the number of listed hosts in the scene with Machines.
	cloudHosts = 8
)

// operatorCondition is the name of the OperatorCondition that OLM creates for this operator.
const operatorCondition = "windows-machine-config-operator.v0.1.0"

// theCloud is the second shared scene. It has Machines. The first test that needs it starts it.
var theCloud = struct {
	sync.Mutex
	stage *stage
	line  line
}{line: line{name: "stage with a cloud"}}

// cloudStage waits for the test's turn and returns the scene with Machines. Its tests run one after the other. At its
// end, each test deletes its Machines.
func cloudStage(t *testing.T) *stage {
	t.Helper()
	inLine(t, &theCloud.line)()
	return startedCloud(t)
}

// startedCloud returns the scene with Machines without waiting for a turn.
func startedCloud(t *testing.T) *stage {
	t.Helper()
	theCloud.Lock()
	defer theCloud.Unlock()
	if theCloud.stage == nil {
		s, err := scene.Start(context.WithoutCancel(t.Context()), cloudOptions(cloudHosts))
		if err != nil {
			t.Fatal(err)
		}
		theCloud.stage = &stage{Scene: s, listed: map[string]string{}}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the operator's log: %s", theCloud.stage.Operator.Tail(6000))
		}
	})
	return theCloud.stage
}

// age backdates the publication of the host key in the user data by an hour. The operator requires this key only of
// hosts that were created at least a minute after the publication.
func (s *stage) age(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{}
	s.await(t, "the host key of the user data to be published", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.MachineAPINamespace,
			Name: contract.UserDataSecret}, secret)
		return secret.Annotations[contract.HostKeyPublishedAnnotation] != "", "", client.IgnoreNotFound(err)
	})
	patch := client.MergeFrom(secret.DeepCopy())
	secret.Annotations[contract.HostKeyPublishedAnnotation] = time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	if err := s.Client.Patch(t.Context(), secret, patch); err != nil {
		t.Fatal(err)
	}
}

func closeCloud() error {
	theCloud.Lock()
	defer theCloud.Unlock()
	if theCloud.stage == nil {
		return nil
	}
	return theCloud.stage.Close()
}

// cloudOptions returns the options that all scenes with Machines have.
func cloudOptions(hosts int) scene.Options {
	o := options(hosts)
	o.Platform = platform
	o.OLM = operatorCondition
	o.Cloud = cloud.Options{Provision: 200 * time.Millisecond}
	// The default is minutes, so that a real host has time to run its user data.
	o.Arguments = append(o.Arguments, "--machine-refusal-timeout", "2s")
	return o
}

// set creates a MachineSet, and deletes it when the test ends.
func (s *stage) set(t *testing.T, name string, replicas int32,
	edits ...func(*machinev1beta1.MachineSet)) *machinev1beta1.MachineSet {
	t.Helper()
	if err := s.WaitUserData(t.Context(), soon); err != nil {
		t.Fatal(err)
	}
	set := cloud.NewMachineSet(platform, name, replicas)
	for _, edit := range edits {
		edit(set)
	}
	if err := s.Client.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.clear(context.WithoutCancel(t.Context()), set); err != nil {
			t.Error(err)
		}
	})
	return set
}

// clear deletes a set with all its Machines, and waits until none of their objects is left.
func (s *stage) clear(ctx context.Context, set *machinev1beta1.MachineSet) error {
	machines, err := s.Machines(ctx, set.Name)
	if err != nil {
		return err
	}
	if err = s.Client.Delete(ctx, set); client.IgnoreNotFound(err) != nil {
		return err
	}
	for i := range machines {
		if err = s.WaitMachineGone(ctx, 2*soon, &machines[i]); err != nil {
			return err
		}
	}
	return nil
}

// machines returns the Machines of a set that are not being deleted.
func (s *stage) machines(t *testing.T, set string) []machinev1beta1.Machine {
	t.Helper()
	all, err := s.Machines(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(m machinev1beta1.Machine) bool { return !m.DeletionTimestamp.IsZero() })
}

// running waits until a set has all its Machines, and each has a Ready node and a host in the cloud.
func (s *stage) running(t *testing.T, set string, count int) []machinev1beta1.Machine {
	t.Helper()
	if err := s.awaitRunning(t.Context(), soon, set, count); err != nil {
		t.Fatal(errors.Join(err, errors.New(s.Operator.Tail(3000))))
	}
	return s.machines(t, set)
}

func (s *stage) awaitRunning(ctx context.Context, limit time.Duration, set string, count int) error {
	return s.Await(ctx, limit, fmt.Sprintf("%d machines of set %s to run", count, set),
		func(ctx context.Context) (bool, string, error) {
			machines, err := s.Machines(ctx, set)
			if err != nil {
				return false, "", err
			}
			var behind []string
			for _, m := range machines {
				switch i, err := s.InstanceNamed(ctx, m.Name); {
				case !m.DeletionTimestamp.IsZero():
					behind = append(behind, m.Name+" leaves")
				case err != nil:
					behind = append(behind, m.Name+": "+ptr.Deref(m.Status.Phase, "no phase")+", no instance")
				case i.Status.Reason() != string(contract.ReasonNodeReady) ||
					ptr.Deref(m.Status.Phase, "") != machinev1beta1.PhaseRunning:
					behind = append(behind,
						fmt.Sprintf("%s: %s, %s %s", m.Name, ptr.Deref(m.Status.Phase, ""), i.Status.Phase,
							i.Status.Message()))
				}
			}
			return len(machines) == count &&
				len(behind) == 0, fmt.Sprintf("%d machines; ", len(machines)) + strings.Join(behind, "; "), nil
		})
}

// host returns the host of a Machine.
func (s *stage) host(t *testing.T, machine *machinev1beta1.Machine) *fleet.Host {
	t.Helper()
	host, ok := s.Cloud.Host(machine.Name)
	if !ok {
		t.Fatalf("machine %s has no host", machine.Name)
	}
	return host
}

// booted waits until the Machines of a set have hosts.
func (s *stage) booted(t *testing.T, set string, count int) []machinev1beta1.Machine {
	t.Helper()
	s.await(t, "the hosts of set "+set, func(ctx context.Context) (bool, string, error) {
		machines, err := s.Machines(ctx, set)
		up := 0
		for _, m := range machines {
			if _, ok := s.Cloud.Host(m.Name); ok {
				up++
			}
		}
		return len(machines) == count && up == count, fmt.Sprintf("%d machines, %d hosts", len(machines), up), err
	})
	return s.machines(t, set)
}

// named reads the WindowsInstance of a Machine.
func (s *stage) named(t *testing.T, machine *machinev1beta1.Machine) *v1alpha1.WindowsInstance {
	t.Helper()
	i, err := s.InstanceNamed(t.Context(), machine.Name)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// reason waits until the WindowsInstance of a Machine has a given reason.
func (s *stage) reason(t *testing.T, machine *machinev1beta1.Machine, want contract.Reason) {
	t.Helper()
	s.await(t, fmt.Sprintf("machine %s to have the reason %s", machine.Name, want),
		func(ctx context.Context) (bool, string, error) {
			i, err := s.InstanceNamed(ctx, machine.Name)
			if err != nil {
				return false, "no instance", client.IgnoreNotFound(errors.Unwrap(err))
			}
			return i.Status.Reason() == string(want), i.Status.Reason() + " " + i.Status.Message(), nil
		})
}

// told waits for an event about a Machine whose note contains a text.
func (s *stage) told(t *testing.T, machine *machinev1beta1.Machine, reason, text string) {
	t.Helper()
	s.await(t, fmt.Sprintf("an event %s about machine %s", reason, machine.Name),
		func(ctx context.Context) (bool, string, error) {
			events := &corev1.EventList{}
			if err := s.Client.List(ctx, events, client.InNamespace(machine.Namespace)); err != nil {
				return false, "", err
			}
			said := []string{}
			for _, e := range events.Items {
				if e.InvolvedObject.Name != machine.Name {
					continue
				}
				if e.Reason == reason && strings.Contains(e.Message, text) {
					return true, "", nil
				}
				said = append(said, e.Reason+": "+e.Message)
			}
			return false, strings.Join(said, "; "), nil
		})
}

// nodeOf reads a Machine's Node.
func (s *stage) nodeOf(t *testing.T, machine *machinev1beta1.Machine) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: machine.Status.NodeRef.Name}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

// lone creates a Machine without a MachineSet, and deletes it when the test ends.
func (s *stage) lone(t *testing.T, name string, edits ...func(*machinev1beta1.Machine)) *machinev1beta1.Machine {
	t.Helper()
	if err := s.WaitUserData(t.Context(), soon); err != nil {
		t.Fatal(err)
	}
	template := cloud.NewMachineSet(platform, name, 1).Spec.Template
	machine := &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: contract.MachineAPINamespace, Name: name, Labels: template.Labels,
			Annotations: template.Annotations,
		},
		Spec: template.Spec,
	}
	for _, edit := range edits {
		edit(machine)
	}
	if err := s.Client.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := s.Client.Delete(ctx, machine); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
		if err := s.WaitMachineGone(ctx, soon, machine); err != nil {
			t.Error(err)
		}
	})
	return machine
}
