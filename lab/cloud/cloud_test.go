package cloud_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/userdata"
	"github.com/windows-nodes/wmco/lab/cloud"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/leak"
	"github.com/windows-nodes/wmco/lab/openshift"
	"github.com/windows-nodes/wmco/lab/plane"
	"github.com/windows-nodes/wmco/lab/scheme"
)

// site is a cluster with a cloud.
type site struct {
	client.Client
	cloud   *cloud.Cloud
	key     ssh.Signer
	hostKey ssh.PublicKey
}

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	leak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

func startSite(t *testing.T) *site {
	t.Helper()
	lab := plane.Start(t, cluster.Options{})
	err := openshift.Install(t.Context(), lab.Admin(),
		openshift.Options{APIServer: lab.URL, CA: lab.CAPEM, Platform: configv1.AWSPlatformType})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{}
	s.Client, err = client.New(lab.Admin(), client.Options{Scheme: scheme.New(t, machinev1beta1.Install)})
	if err != nil {
		t.Fatal(err)
	}
	if s.cloud, err = cloud.New(cloud.Options{Config: lab.Admin(), Platform: configv1.AWSPlatformType}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.cloud.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.publish(t)
	return s
}

// publish writes user data with new keys.
func (s *site) publish(t *testing.T) {
	t.Helper()
	private, public := keyPair(t)
	hostPrivate, hostPublic := keyPair(t)
	text, err := userdata.Render(userdata.Input{Platform: contract.PlatformAWS, PublicKey: authorizedLine(public),
		HostKey: hostPrivate})
	if err != nil {
		t.Fatal(err)
	}
	if s.key, err = ssh.ParsePrivateKey(private); err != nil {
		t.Fatal(err)
	}
	s.hostKey = hostPublic
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, Name: cloud.UserDataSecret},
		Data:       map[string][]byte{"userData": []byte(text)},
	}
	if err = s.Create(t.Context(), secret); apierrors.IsAlreadyExists(err) {
		err = s.Update(t.Context(), secret)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// login reports whether a host accepts a key and presents the host key of the user data.
func login(host *fleet.Host, key ssh.Signer, hostKey ssh.PublicKey) error {
	client, err := ssh.Dial("tcp", host.Address().String(), &ssh.ClientConfig{
		User: "Administrator", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(hostKey),
		HostKeyAlgorithms: []string{hostKey.Type()}, Timeout: time.Minute,
	})
	if err != nil {
		return err
	}
	return client.Close()
}

func (s *site) make(t *testing.T, set *machinev1beta1.MachineSet) {
	t.Helper()
	if err := s.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
}

// machines waits until a set has the given number of Machines and a condition holds for each of them, and returns them.
func (s *site) machines(t *testing.T, set string, count int,
	holds func(*machinev1beta1.Machine) error) []machinev1beta1.Machine {
	t.Helper()
	list := &machinev1beta1.MachineList{}
	eventually(t, func(ctx context.Context) error {
		if err := s.List(
			ctx, list, client.MatchingLabels{"machine.openshift.io/cluster-api-machineset": set}); err != nil {
			return err
		}
		if len(list.Items) != count {
			return fmt.Errorf("set %s has %d machines, want %d", set, len(list.Items), count)
		}
		for i := range list.Items {
			if err := holds(&list.Items[i]); err != nil {
				return fmt.Errorf("machine %s in phase %s: %w", list.Items[i].Name,
					ptr.Deref(list.Items[i].Status.Phase, ""), err)
			}
		}
		return nil
	})
	return list.Items
}

func eventually(t *testing.T, holds func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			last = holds(ctx)
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}

func phase(want string) func(*machinev1beta1.Machine) error {
	return func(m *machinev1beta1.Machine) error {
		if got := ptr.Deref(m.Status.Phase, ""); got != want {
			return fmt.Errorf("want %s", want)
		}
		return nil
	}
}

// booted waits until the host of a Machine has booted, and returns the host.
func (s *site) booted(t *testing.T, machine string) *fleet.Host {
	t.Helper()
	var host *fleet.Host
	eventually(t, func(context.Context) error {
		found, ok := s.cloud.Host(machine)
		if !ok {
			return fmt.Errorf("machine %s has no host", machine)
		}
		host = found
		return nil
	})
	return host
}

// join simulates the registration of kubelet on a host.
func (s *site) join(t *testing.T, host *fleet.Host) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host.Name,
		Labels: map[string]string{corev1.LabelOSStable: "windows"}}}
	node.Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true",
		Effect: corev1.TaintEffectNoSchedule}}
	if err := s.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(node.DeepCopy())
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host.Address().Addr().String()}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	if err := s.Status().Patch(t.Context(), node, patch); err != nil {
		t.Fatal(err)
	}
}

func TestMachines(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	t.Run("at the same time", func(t *testing.T) {
		t.Run("live and die with their set", func(t *testing.T) {
			t.Parallel()
			s.liveAndDie(t)
		})
		t.Run("have the faults of their cloud", func(t *testing.T) {
			t.Parallel()
			s.faults(t)
		})
		t.Run("fail when they can't be made", func(t *testing.T) {
			t.Parallel()
			s.failures(t)
		})
		t.Run("have one address, two of them", func(t *testing.T) {
			t.Parallel()
			s.oneAddress(t)
		})
	})
	t.Run("boot with the user data of their birth", s.birth)
}

func (s *site) liveAndDie(t *testing.T) {
	t.Helper()
	set := cloud.NewMachineSet(configv1.AWSPlatformType, "live", 2)
	s.make(t, set)
	machines := s.machines(t, "live", 2, phase(machinev1beta1.PhaseProvisioned))
	for _, m := range machines {
		if owner := metav1.GetControllerOf(&m); owner == nil || owner.UID != set.UID {
			t.Errorf("machine %s has the owner %v", m.Name, owner)
		}
		host := s.booted(t, m.Name)
		if err := login(host, s.key, s.hostKey); err != nil {
			t.Errorf("logging in to machine %s: %v", m.Name, err)
		}
		if got := m.Status.Addresses[0].Address; got != host.Address().Addr().String() {
			t.Errorf("machine %s has the address %s, and its host %s", m.Name, got, host.Address())
		}
		s.join(t, host)
	}
	machines = s.machines(t, "live", 2, phase(machinev1beta1.PhaseRunning))
	for _, m := range machines {
		host := s.booted(t, m.Name)
		eventually(t, func(ctx context.Context) error {
			node := &corev1.Node{}
			err := s.Get(ctx, client.ObjectKey{Name: host.Name}, node)
			if _, worker := node.Labels[contract.WorkerLabel]; err == nil &&
				(node.Spec.ProviderID != *m.Spec.ProviderID || !worker || len(node.Spec.Taints) != 0) {
				err = fmt.Errorf("node %s: provider ID %s, labels %v, taints %v", node.Name, node.Spec.ProviderID,
					node.Labels, node.Spec.Taints)
			}
			return err
		})
		if m.Status.NodeRef.Name != host.Name {
			t.Errorf("machine %s refers to node %s, want %s", m.Name, m.Status.NodeRef.Name, host.Name)
		}
	}
	eventually(t, func(ctx context.Context) error {
		err := s.Get(ctx, client.ObjectKeyFromObject(set), set)
		if err == nil && (set.Status.Replicas != 2 || set.Status.ReadyReplicas != 2 ||
			set.Status.AvailableReplicas != 2) {
			err = fmt.Errorf("the set's status is %+v", set.Status)
		}
		return err
	})
	s.shrink(t, set, machines)
}

// shrink scales a set down step by step. It must delete the marked Machine first.
func (s *site) shrink(t *testing.T, set *machinev1beta1.MachineSet, machines []machinev1beta1.Machine) {
	t.Helper()
	marked, other := machines[1], machines[0]
	host := s.booted(t, marked.Name)
	patch := client.MergeFrom(marked.DeepCopy())
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, "machine.openshift.io/delete-machine", "true")
	if err := s.Patch(t.Context(), &marked, patch); err != nil {
		t.Fatal(err)
	}
	patch = client.MergeFrom(set.DeepCopy())
	set.Spec.Replicas = ptr.To(int32(1))
	if err := s.Patch(t.Context(), set, patch); err != nil {
		t.Fatal(err)
	}
	left := s.machines(t, set.Name, 1, phase(machinev1beta1.PhaseRunning))
	if left[0].Name != other.Name {
		t.Error("the marked machine was not deleted")
	}
	if err := login(host, s.key, s.hostKey); err == nil {
		t.Error("the host of a deleted machine still answers")
	}
	if err := s.Get(t.Context(), client.ObjectKey{Name: host.Name}, &corev1.Node{}); !apierrors.IsNotFound(err) {
		t.Errorf("the node of a deleted machine still exists: %v", err)
	}
	if err := s.Delete(t.Context(), &left[0]); err != nil {
		t.Fatal(err)
	}
	again := s.machines(t, set.Name, 1, phase(machinev1beta1.PhaseProvisioned))
	if again[0].UID == left[0].UID {
		t.Error("a machine that was deleted was not replaced")
	}
}

func (s *site) birth(t *testing.T) {
	t.Helper()
	s.make(t, cloud.NewMachineSet(configv1.AWSPlatformType, "before", 1))
	before := s.machines(t, "before", 1, phase(machinev1beta1.PhaseProvisioned))[0].Name
	oldKey, oldHostKey := s.key, s.hostKey
	host := s.booted(t, before)
	s.publish(t)
	s.make(t, cloud.NewMachineSet(configv1.AWSPlatformType, "after", 1))
	after := s.machines(t, "after", 1, phase(machinev1beta1.PhaseProvisioned))[0].Name
	if err := login(s.booted(t, after), s.key, s.hostKey); err != nil {
		t.Errorf("logging in to a new machine with the new key: %v", err)
	}
	if err := login(host, s.key, oldHostKey); err == nil {
		t.Error("an existing machine accepts the new key")
	}
	if err := login(host, oldKey, oldHostKey); err != nil {
		t.Errorf("logging in to an existing machine with the old key: %v", err)
	}
}

func (s *site) faults(t *testing.T) {
	t.Helper()
	for name, test := range map[string]struct {
		fault       cloud.Fault
		phase       string
		boots, lets bool
		check       func(*machinev1beta1.Machine) error
	}{
		"none":         {fault: cloud.FaultNone, phase: machinev1beta1.PhaseProvisioned, boots: true, lets: true},
		"never boots":  {fault: cloud.FaultNeverBoots, phase: machinev1beta1.PhaseProvisioned},
		"wrong key":    {fault: cloud.FaultWrongKey, phase: machinev1beta1.PhaseProvisioned, boots: true},
		"own host key": {fault: cloud.FaultHostKey, phase: machinev1beta1.PhaseProvisioned, boots: true},
		"no address": {fault: cloud.FaultNoAddress, phase: machinev1beta1.PhaseProvisioned, boots: true, lets: true,
			check: func(m *machinev1beta1.Machine) error {
				if len(m.Status.Addresses) > 0 || m.Spec.ProviderID == nil {
					return fmt.Errorf("addresses %v", m.Status.Addresses)
				}
				return nil
			}},
		"no provider id": {fault: cloud.FaultNoProviderID, phase: machinev1beta1.PhaseProvisioned, boots: true,
			lets: true, check: func(m *machinev1beta1.Machine) error {
				if len(m.Status.Addresses) == 0 || m.Spec.ProviderID != nil {
					return fmt.Errorf("provider ID %s", ptr.Deref(m.Spec.ProviderID, ""))
				}
				return nil
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := cloud.NewMachineSet(configv1.AWSPlatformType, strings.ReplaceAll(name, " ", "-"), 1)
			s.cloud.Spoil(set.Name, test.fault, 1)
			s.make(t, set)
			m := s.machines(t, set.Name, 1, func(m *machinev1beta1.Machine) error {
				if test.check != nil {
					if err := test.check(m); err != nil {
						return err
					}
				}
				return phase(test.phase)(m)
			})[0]
			if !test.boots {
				if _, ok := s.cloud.Host(m.Name); ok {
					t.Error("the host booted, but it must not")
				}
				return
			}
			if err := login(s.booted(t, m.Name), s.key, s.hostKey); (err == nil) != test.lets {
				t.Errorf("the host accepts the login: %v", err)
			}
		})
	}
}

func (s *site) failures(t *testing.T) {
	t.Helper()
	set := cloud.NewMachineSet(configv1.AWSPlatformType, "nothing", 1)
	set.Spec.Template.Spec.ProviderSpec.Value.Raw = []byte(`{"userDataSecret":{"name":"nowhere"}}`)
	s.make(t, set)
	s.machines(t, "nothing", 1, func(m *machinev1beta1.Machine) error {
		if ptr.Deref(m.Status.ErrorReason, "") != machinev1beta1.InvalidConfigurationMachineError {
			return fmt.Errorf("reason %v", m.Status.ErrorReason)
		}
		return phase(machinev1beta1.PhaseFailed)(m)
	})
}

func (s *site) oneAddress(t *testing.T) {
	t.Helper()
	s.make(t, cloud.NewMachineSet(configv1.AWSPlatformType, "first", 1))
	first := s.machines(t, "first", 1, phase(machinev1beta1.PhaseProvisioned))[0]
	second := cloud.NewMachineSet(configv1.AWSPlatformType, "second", 1)
	second.Spec.Template.Annotations[cloud.AddressAnnotation] = first.Status.Addresses[0].Address
	s.make(t, second)
	got := s.machines(t, "second", 1, phase(machinev1beta1.PhaseProvisioned))[0]
	if got.Status.Addresses[0].Address != first.Status.Addresses[0].Address ||
		*got.Spec.ProviderID == *first.Spec.ProviderID {
		t.Errorf("the second machine has the addresses %v and the provider ID %s", got.Status.Addresses,
			*got.Spec.ProviderID)
	}
	if err := login(s.booted(t, first.Name), s.key, s.hostKey); err != nil {
		t.Error(err)
	}
}
