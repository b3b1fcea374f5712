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
	// platform of the scene with Machines: the one whose hosts are named by a metadata service and
	// get their host key from user data.
	platform = configv1.AWSPlatformType
	// cloudHosts is how many listed hosts that scene has.
	cloudHosts = 8
)

// operatorCondition is the name that OLM gives to the object for this operator.
const operatorCondition = "windows-machine-config-operator.v0.1.0"

// theCloud is the second scene that tests share: it has Machines. It starts with the first test
// that wants it.
var theCloud = struct {
	sync.Mutex
	stage *stage
	line  line
}{line: line{name: "stage with a cloud"}}

// cloudStage gives the scene with Machines, when it is the test's turn. Its tests run one after the other, and
// each takes its Machines away at its end.
func cloudStage(t *testing.T) *stage {
	t.Helper()
	inLine(t, &theCloud.line)()
	return startedCloud(t)
}

// startedCloud gives the scene with Machines to who need not wait for it.
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

// age makes the host key of the user data look as if it had been there for an hour: hosts are
// expected to have it that were made a minute later.
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

// cloudOptions are what scenes with Machines have in common.
func cloudOptions(hosts int) scene.Options {
	o := options(hosts)
	o.Platform = platform
	o.OLM = operatorCondition
	o.Cloud = cloud.Options{Provision: 200 * time.Millisecond}
	// The default of minutes gives real hosts time to run their user data.
	o.Arguments = append(o.Arguments, "--machine-refusal-timeout", "2s")
	return o
}

// set makes a MachineSet that goes with the test.
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

// clear removes a set with all its Machines, and waits until nothing of them is left.
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

// machines of a set that are to stay.
func (s *stage) machines(t *testing.T, set string) []machinev1beta1.Machine {
	t.Helper()
	all, err := s.Machines(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(m machinev1beta1.Machine) bool { return !m.DeletionTimestamp.IsZero() })
}

// running waits until a set has its Machines, and all of them are Ready nodes that the cloud knows,
// too.
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
				case i.Status.Reason != string(contract.ReasonNodeReady) ||
					ptr.Deref(m.Status.Phase, "") != machinev1beta1.PhaseRunning:
					behind = append(behind,
						fmt.Sprintf("%s: %s, %s %s %s", m.Name, ptr.Deref(m.Status.Phase, ""), i.Status.Phase,
							i.Status.Code, i.Status.Message))
				}
			}
			return len(machines) == count &&
				len(behind) == 0, fmt.Sprintf("%d machines; ", len(machines)) + strings.Join(behind, "; "), nil
		})
}

// host of a Machine.
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

// named reads the instance of a Machine.
func (s *stage) named(t *testing.T, machine *machinev1beta1.Machine) *v1alpha1.WindowsInstance {
	t.Helper()
	i, err := s.InstanceNamed(t.Context(), machine.Name)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// reason waits until the instance of a Machine has a reason.
func (s *stage) reason(t *testing.T, machine *machinev1beta1.Machine, want contract.Reason) {
	t.Helper()
	s.await(t, fmt.Sprintf("machine %s to have the reason %s", machine.Name, want),
		func(ctx context.Context) (bool, string, error) {
			i, err := s.InstanceNamed(ctx, machine.Name)
			if err != nil {
				return false, "no instance", client.IgnoreNotFound(errors.Unwrap(err))
			}
			return i.Status.Reason == string(want), i.Status.Reason + " " + i.Status.Message, nil
		})
}

// told waits for an event about a Machine whose note holds a text.
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

// lone makes a Machine that no MachineSet has, and that goes with the test.
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
