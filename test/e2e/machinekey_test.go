package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host/sshhost"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/cloud"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// clusterAPI is the namespace of Cluster API. If it exists, the operator publishes the user data there as well.
const clusterAPI = "openshift-cluster-api"

// userData reads the script that Machines run at their first boot.
func (s *stage) userData(t *testing.T, namespace string) string {
	t.Helper()
	return string(s.userDataSecret(t, namespace).Data["userData"])
}

func (s *stage) userDataSecret(t *testing.T, namespace string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: cloud.UserDataSecret},
		secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

// hashOf returns the hash of a key, in the form used in annotations and status.
func hashOf(t *testing.T, key *scene.Key) string {
	t.Helper()
	parsed, err := sshhost.ParseKey(key.PEM)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Hash
}

func authorized(key ssh.PublicKey) []byte { return ssh.MarshalAuthorizedKey(key) }

// letsIn waits until the user data of a namespace authorizes exactly one key.
func (s *stage) letsIn(t *testing.T, namespace string, key *scene.Key) {
	t.Helper()
	s.await(t, "the user data of "+namespace+" to have the key", func(ctx context.Context) (bool, string, error) {
		secret := &corev1.Secret{}
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cloud.UserDataSecret},
			secret); err != nil {
			return false, "no secret", client.IgnoreNotFound(err)
		}
		setup, err := cloud.Evaluate(platform, string(secret.Data["userData"]), nil)
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // the test may have written invalid user data
		}
		return len(setup.Keys) == 1 && bytes.Equal(setup.Keys[0].Marshal(), key.Public.Marshal()),
			fmt.Sprintf("%d keys", len(setup.Keys)), nil
	})
}

func TestA17_TheUserDataIsRestored(t *testing.T) {
	s := cloudStage(t)
	s.set(t, "steady", 2)
	before := s.running(t, "steady", 2)
	s.letsIn(t, contract.MachineAPINamespace, s.Key)
	s.put(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clusterAPI}})
	if err := s.Apply(t.Context(), "config/cluster-api"); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{contract.MachineAPINamespace, clusterAPI} {
		s.letsIn(t, namespace, s.Key)
		first := s.userDataSecret(t, namespace)
		if err := s.Client.Delete(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		s.letsIn(t, namespace, s.Key)
		again := s.userDataSecret(t, namespace)
		if again.UID == first.UID {
			t.Errorf("%s: the user data was not deleted", namespace)
		}
		if string(again.Data["userData"]) != string(first.Data["userData"]) {
			t.Errorf("%s: the user data was deleted and created again", namespace)
		}
		for what, edit := range map[string]func(*corev1.Secret){
			"another script": func(s *corev1.Secret) { s.Data["userData"] = []byte("<powershell>\n</powershell>") },
			"nothing":        func(s *corev1.Secret) { s.Data = nil },
			"something added": func(s *corev1.Secret) {
				s.Data["userData"] = append(s.Data["userData"],
					"\n# by hand"...)
			},
		} {
			patch := client.MergeFrom(again.DeepCopy())
			edit(again)
			if err := s.Client.Patch(t.Context(), again, patch); err != nil {
				t.Fatalf("%s: %s: %v", namespace, what, err)
			}
			s.await(t, namespace+": the user data to be back after "+what,
				func(ctx context.Context) (bool, string, error) {
					err := s.Client.Get(ctx, client.ObjectKeyFromObject(again), again)
					return string(again.Data["userData"]) == string(first.Data["userData"]), "",
						client.IgnoreNotFound(err)
				})
		}
	}
	pause(t, 3*time.Second)
	s.same(t, "steady", before)
}

func TestUserDataOfSomebodyElseIsLeftAlone(t *testing.T) {
	s := cloudStage(t)
	s.letsIn(t, contract.MachineAPINamespace, s.Key)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace,
		Name: "somebodys"}}
	s.put(t, owner)
	for what, edit := range map[string]func(*corev1.Secret){
		"managed by another": func(s *corev1.Secret) { s.Labels[contract.ManagedByLabel] = "somebody-else" },
		"owned by another": func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name,
				UID: owner.UID}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			mine := s.userDataSecret(t, contract.MachineAPINamespace)
			const theirs = "<powershell>\n# theirs\n</powershell>"
			patch := client.MergeFrom(mine.DeepCopy())
			edit(mine)
			mine.Data["userData"] = []byte(theirs)
			if err := s.Client.Patch(t.Context(), mine, patch); err != nil {
				t.Fatal(err)
			}
			s.await(t, "the operator to say whose it is", func(ctx context.Context) (bool, string, error) {
				config := &v1alpha1.WindowsMachineConfig{}
				err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
				c := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionDegraded)
				return c != nil && c.Status == metav1.ConditionTrue &&
					c.Reason == string(contract.ReasonUserDataForeign), fmt.Sprint(c), err
			})
			if got := s.userData(t, contract.MachineAPINamespace); got != theirs {
				t.Errorf("the operator overwrote the user data of someone else: %.80q", got)
			}
			if err := s.Client.Delete(t.Context(), mine); err != nil {
				t.Fatal(err)
			}
			s.letsIn(t, contract.MachineAPINamespace, s.Key)
		})
	}
}

// same checks that a set still has the same Machines, and that the operator did not contact their hosts again.
func (s *stage) same(t *testing.T, set string, before []machinev1beta1.Machine) {
	t.Helper()
	after := map[types.UID]bool{}
	for _, m := range s.running(t, set, len(before)) {
		after[m.UID] = true
	}
	for _, m := range before {
		if !after[m.UID] {
			t.Errorf("machine %s was replaced", m.Name)
			continue
		}
		if c := s.host(t, &m).Server.Counters(); c.Connections != 1 {
			t.Errorf("machine %s: %d connections, want only the connection of its join", m.Name, c.Connections)
		}
	}
}

func TestA18_TheKeyIsReplacedForthAndBack(t *testing.T) {
	s := cloudStage(t)
	own := s.hosts(t, 2)
	s.join(t, own...)
	const count = 3
	s.set(t, "rotated", count)
	first := s.running(t, "rotated", count)
	other := newKey(t)
	t.Cleanup(func() { s.settle(t) })
	watch := s.watchNodes(t, "rotated", count, own...)

	s.replaceKey(t, other)
	s.letsIn(t, contract.MachineAPINamespace, other)
	second := s.replaced(t, "rotated", first)
	for _, m := range second {
		if i := s.named(t, &m); i.Status.PublicKeyHash != hashOf(t, other) {
			t.Errorf("machine %s has the key %s", m.Name, i.Status.PublicKeyHash)
		}
	}
	for _, h := range own {
		s.keyIs(t, h, metav1.ConditionFalse, contract.ReasonKeyNotAuthorized)
	}
	// When the user authorizes the new key on the listed hosts, the status reports this. Nothing else changes on these
	// hosts.
	for _, h := range own {
		if err := sshd.Authorize(h.Machine.Host().Files, other.Public); err != nil {
			t.Fatal(err)
		}
		s.retryNow(t, h)
		s.keyIs(t, h, metav1.ConditionTrue, "")
	}

	// The old key is restored. Meanwhile, the operator is killed several times.
	s.replaceKey(t, s.Key)
	for range 3 {
		pause(t, 1500*time.Millisecond)
		if err := s.Operator.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Operator.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.letsIn(t, contract.MachineAPINamespace, s.Key)
	s.replaced(t, "rotated", second)
	for _, h := range own {
		if err := sshd.Authorize(h.Machine.Host().Files, s.Key.Public); err != nil {
			t.Fatal(err)
		}
		s.retryNow(t, h)
		s.keyIs(t, h, metav1.ConditionTrue, "")
	}
	watch(t)
	s.drop(t, own...)
	s.gone(t, own...)
}

func newKey(t *testing.T) *scene.Key {
	t.Helper()
	key, err := scene.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// settle makes the scene's own key the private key again, because the next tests need it.
func (s *stage) settle(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if err := s.PutKey(ctx, s.Key); err != nil {
		t.Error(err)
	}
	err := s.Await(ctx, soon, "the user data to have the scene's own key",
		func(ctx context.Context) (bool, string, error) {
			secret := &corev1.Secret{}
			if err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.MachineAPINamespace,
				Name: cloud.UserDataSecret}, secret); err != nil {
				return false, "", client.IgnoreNotFound(err)
			}
			setup, err := cloud.Evaluate(platform, string(secret.Data["userData"]), nil)
			return err == nil && len(setup.Keys) == 1 &&
				bytes.Equal(setup.Keys[0].Marshal(), s.Key.Public.Marshal()), "", nil
		})
	if err != nil {
		t.Error(err)
	}
}

// replaceKey stores another private key in the secret. Listed hosts still accept the scene's own key.
func (s *stage) replaceKey(t *testing.T, key *scene.Key) {
	t.Helper()
	if err := s.PutKey(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

// replaced waits until new Machines have replaced all old Machines of a set, and all of them run.
func (s *stage) replaced(t *testing.T, set string, old []machinev1beta1.Machine) []machinev1beta1.Machine {
	t.Helper()
	return s.replacedBy(t, set, old, len(old))
}

func (s *stage) replacedBy(t *testing.T, set string, old []machinev1beta1.Machine, count int) []machinev1beta1.Machine {
	t.Helper()
	gone := map[types.UID]bool{}
	for _, m := range old {
		gone[m.UID] = true
	}
	err := s.Await(t.Context(), 2*soon, "the machines of "+set+" to be replaced",
		func(ctx context.Context) (bool, string, error) {
			machines, err := s.Machines(ctx, set)
			left := []string{}
			for _, m := range machines {
				if gone[m.UID] {
					left = append(left, m.Name)
				}
			}
			return len(left) == 0 && len(machines) == count,
				fmt.Sprintf("%d machines; old machines: %s", len(machines), strings.Join(left, " ")), err
		})
	if err != nil {
		t.Fatalf("%v; %s", err, s.Operator.Tail(3000))
	}
	return s.running(t, set, count)
}

// keyIs waits until the instance of a listed host reports whether the host accepts the current key.
func (s *stage) keyIs(t *testing.T, h *fleet.Host, status metav1.ConditionStatus, reason contract.Reason) {
	t.Helper()
	s.await(t, fmt.Sprintf("%s to report that the key is authorized: %s", h.Name, status),
		func(ctx context.Context) (bool, string, error) {
			i, err := s.Instance(ctx, h)
			if err != nil {
				return false, "", err
			}
			c := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionKeyAuthorized)
			if c == nil {
				return false, "it says nothing", nil
			}
			return c.Status == status && (reason == "" || c.Reason == string(reason)),
				fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), nil
		})
}

// watchNodes records how many Windows nodes are unavailable at the same time, until the returned function is called. Of
// Machines, at most one may be unavailable, which is the default of the rollout budget. Listed hosts must always be
// available.
func (s *stage) watchNodes(t *testing.T, set string, count int, listed ...*fleet.Host) (end func(t *testing.T)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	fewest, lost := count, map[string]bool{}
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			nodes := &corev1.NodeList{}
			if err := s.Client.List(ctx, nodes); err != nil {
				continue
			}
			ofSet, up := 0, map[string]bool{}
			for _, n := range nodes.Items {
				up[n.Name] = policy.IsReady(&n) && !n.Spec.Unschedulable
				if strings.HasPrefix(n.Annotations["machine.openshift.io/machine"],
					contract.MachineAPINamespace+"/"+set+"-") && up[n.Name] {
					ofSet++
				}
			}
			mu.Lock()
			fewest = min(fewest, ofSet)
			for _, h := range listed {
				if !up[h.Name] {
					lost[h.Name] = true
				}
			}
			mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return func(t *testing.T) {
		t.Helper()
		cancel()
		group.Wait()
		if fewest < count-1 {
			t.Errorf("only %d of %d nodes of machines were available at one time, "+
				"but the budget allows only one to be missing", fewest, count)
		}
		for name := range lost {
			t.Errorf("node %s of a listed host was unavailable at some time", name)
		}
	}
}
