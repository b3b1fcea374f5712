package userdata

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/userdata"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/plane"
)

const (
	machineAPI = contract.MachineAPINamespace
	clusterAPI = contract.ClusterAPINamespace
	script     = contract.UserDataSecret
)

// This test follows the Secrets with user data from their creation to their deletion, with a real API server and the
// shipped rights.
func TestA17_UserDataIsWrittenKeptAndFollowsTheKey(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first, second := newLine(t), newLine(t)
	stop := s.start()

	s.key("an encrypted one")
	s.stays(machineAPI, nil) // without a usable key, nothing is written
	s.key(first)
	s.eventually(machineAPI, script, "the first key", authorizes(first))

	// The second namespace is created later, and the operator gets its rights there even later.
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clusterAPI}})
	s.problems(contract.ReasonUserDataForbidden)
	plane.Apply(s.t, s.lab, "cluster-api")
	s.eventually(clusterAPI, script, "the first key", authorizes(first))
	s.problems()

	for _, where := range []string{machineAPI, clusterAPI} {
		written := s.eventually(where, script, "marks", func(secret *corev1.Secret) bool {
			return secret.Labels[contract.ManagedByLabel] == contract.OperatorServiceAccount &&
				secret.Annotations[contract.PublicKeyHashAnnotation] == "hash-of-"+first[len(first)-8:]
		})
		s.change(where, script, func(secret *corev1.Secret) {
			secret.Data[contract.UserDataField] = []byte("<powershell>exit</powershell>")
			secret.Data["disableTemplating"] = []byte("true")
			delete(secret.Labels, contract.ManagedByLabel)
		})
		s.eventually(where, script, "the script back, and what somebody added", func(secret *corev1.Secret) bool {
			return string(secret.Data[contract.UserDataField]) == string(written.Data[contract.UserDataField]) &&
				string(secret.Data["disableTemplating"]) == "true" &&
				secret.Labels[contract.ManagedByLabel] == contract.OperatorServiceAccount
		})
		s.remove(written)
		s.eventually(where, script, "a new one", func(secret *corev1.Secret) bool {
			return secret.UID != written.UID &&
				string(secret.Data[contract.UserDataField]) == string(written.Data[contract.UserDataField])
		})
	}

	s.holds(first, true)
	s.key(second)
	s.eventually(machineAPI, script, "the second key", authorizes(second))
	s.holds(second, true)
	s.holds(first, false)
	last := s.eventually(clusterAPI, script, "the second key", authorizes(second))
	s.key("not a key")
	s.stays(clusterAPI, last)
	s.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.PrivateKeySecret}})
	s.stays(clusterAPI, last)
	s.key(second)
	s.stays(clusterAPI, last)

	stop()
	s.key(first)
	s.start()
	s.eventually(machineAPI, script, "what changed while the operator was away", authorizes(first))
	s.usedItsRights()
}

// If there is no key, the user data contains a join command. If a user replaces a key, nothing changes.
func TestA88_WithoutAKeyTheUserDataIsACommand(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	commands := func(secret *corev1.Secret) bool {
		return strings.Contains(string(secret.Data[contract.UserDataField]), "& { join }") &&
			!strings.Contains(string(secret.Data[contract.UserDataField]), "sshd")
	}
	joins := func(what string, want bool) {
		t.Helper()
		s.until(what, func() bool {
			byItself, err := s.first.ByItself(t.Context())
			return err == nil && byItself == want
		})
	}
	s.start()
	joins("Machines to be reached over SSH, while the command is unknown", false)
	s.set(func() { s.join = "& { join }\n" })
	s.eventually(machineAPI, script, "the command", commands)
	joins("Machines to join by themselves", true)

	line := newLine(t)
	s.key(line)
	s.eventually(machineAPI, script, "the key", authorizes(line))
	joins("new Machines to be reached over SSH", false)
	s.holds(line, true)

	s.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.PrivateKeySecret}})
	last, err := s.read(machineAPI, script)
	if err != nil {
		t.Fatal(err)
	}
	s.stays(machineAPI, last)
	now := s.clock()
	s.set(func() { s.now = now.Add(time.Hour) })
	s.eventually(machineAPI, script, "the command again", commands)
	joins("new Machines to join by themselves again", true)
}

// holds waits until the user data shows whether Machines are created with a key (want).
func (s *stage) holds(line string, want bool) {
	s.t.Helper()
	s.until("the user data to show the key with which Machines are created", func() bool {
		holds, err := s.first.Authorizes(s.t.Context(), "hash-of-"+line[len(line)-8:])
		return err == nil && holds == want
	})
}

// stays checks that a Secret stays unchanged for so long that the controller would have changed it by then. If want is
// nil, the Secret must not exist.
func (s *stage) stays(where string, want *corev1.Secret) {
	s.t.Helper()
	const long = 300 * time.Millisecond
	for end := time.After(long); ; {
		got, err := s.read(where, script)
		if want == nil && !apierrors.IsNotFound(err) || want != nil &&
			(err != nil || got.ResourceVersion != want.ResourceVersion) {
			s.t.Fatalf("%s of %s changed: %v %v", script, where, got.Annotations, err)
		}
		select {
		case <-end:
			return
		case <-time.After(long / 10):
		}
	}
}

// usedItsRights checks that the controller sent only the requests that it needs. The API server may have refused only
// requests for which the controller can't know in advance whether it has the right.
func (s *stage) usedItsRights() {
	s.t.Helper()
	for r, err := range cluster.Requests(s.lab.AuditLog) {
		if err != nil {
			s.t.Fatal(err)
		}
		if !strings.HasSuffix(r.User, ":"+contract.OperatorServiceAccount) || r.Resource != "secrets" ||
			r.Namespace == namespace {
			continue
		}
		if r.Code == http.StatusForbidden && (r.Namespace != clusterAPI || r.Verb != "get") {
			s.t.Errorf("the request to %s %s was refused", r.Verb, r.URI)
		}
		if r.Name != script && r.Verb != "create" && !strings.Contains(r.URI, "metadata.name%3D"+script) {
			s.t.Errorf("%s %s reads other Secrets", r.Verb, r.URI)
		}
	}
}

func TestUserDataOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	mine := func(change func(secret *corev1.Secret)) *corev1.Secret {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: machineAPI, Name: script},
			Data: map[string][]byte{contract.UserDataField: []byte("mine")}}
		change(secret)
		return secret
	}
	line := newLine(t)
	s.key(line)
	s.create(mine(func(secret *corev1.Secret) { secret.Labels = map[string]string{contract.ManagedByLabel: "Helm"} }))
	s.start()
	for name, change := range map[string]func(secret *corev1.Secret){
		"a label says so": func(
			secret *corev1.Secret) {
			secret.Labels = map[string]string{contract.ManagedByLabel: "Helm"}
		},
		"an owner says so": func(secret *corev1.Secret) {
			secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: machineAPI,
				UID: s.uid()}}
		},
		"it is immutable":       func(secret *corev1.Secret) { secret.Immutable = new(true) },
		"it is of its own type": func(secret *corev1.Secret) { secret.Type = "example.com/own" },
	} {
		t.Run(name, func(t *testing.T) {
			s.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: machineAPI, Name: script}})
			// The operator may create the Secret before the test does. In this case, the test tries again.
			for err := s.admin.Create(t.Context(), mine(change)); err != nil; err = s.admin.Create(t.Context(),
				mine(change)) {
				if !apierrors.IsAlreadyExists(err) {
					t.Fatal(err)
				}
				s.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: machineAPI, Name: script}})
			}
			s.problems(contract.ReasonUserDataForeign)
			s.holds(line, false)
			if secret, err := s.read(machineAPI, script); err != nil ||
				string(secret.Data[contract.UserDataField]) != "mine" {
				t.Errorf("the Secret was overwritten: %v", err)
			}
			s.set(func() { s.now = time.Now().Add(-time.Hour) })
			s.expects("a Machine with other user data", instance(s.machine("m"+strings.ReplaceAll(name, " ", "-"), script)),
				"")
		})
	}
	events := &eventsv1.EventList{}
	s.until("an event", func() bool {
		if err := s.admin.List(t.Context(), events); err != nil {
			t.Fatal(err)
		}
		for _, e := range events.Items {
			if e.Reason == string(contract.ReasonUserDataForeign) && e.Regarding.Kind == "WindowsMachineConfig" &&
				strings.Contains(e.Note, "W917") {
				return true
			}
		}
		return false
	})

	// A Secret without any mark may come from an earlier operator, so the operator takes it over.
	s.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: machineAPI, Name: script}})
	s.eventually(machineAPI, script, "ours", func(secret *corev1.Secret) bool {
		return secret.Labels[contract.ManagedByLabel] == contract.OperatorServiceAccount
	})
	s.problems()
	s.change(machineAPI, script, func(secret *corev1.Secret) {
		secret.Labels, secret.Data[contract.UserDataField] = nil, []byte("of an earlier operator")
	})
	s.eventually(machineAPI, script, "ours", func(secret *corev1.Secret) bool {
		return secret.Labels[contract.ManagedByLabel] == contract.OperatorServiceAccount
	})
}

func (s *stage) uid() types.UID {
	s.t.Helper()
	owner := &corev1.Namespace{}
	if err := s.admin.Get(s.t.Context(), types.NamespacedName{Name: machineAPI}, owner); err != nil {
		s.t.Fatal(err)
	}
	return owner.UID
}

func (s *stage) until(what string, holds func() bool) {
	s.t.Helper()
	deadline := time.After(2 * time.Minute)
	for !holds() {
		select {
		case <-deadline:
			s.t.Fatalf("waited too long for %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// The hosts of some Machines must have the shared host key, and others need not have it.
func TestA09_TheHostKeyOfTheUserDataIsExpectedOfMachinesThatHaveIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	old := s.machine("old", script) // created before anything was published
	s.key(newLine(t))
	s.set(func() { s.now = time.Now().Add(-time.Hour) }) // as if the host key had been published an hour ago
	s.start()
	secret := s.eventually(namespace, contract.HostKeySecret, "a host key",
		func(secret *corev1.Secret) bool { return *secret.Immutable })
	line, err := userdata.HostKeyLine(secret.Data[contract.HostKeyField])
	if err != nil {
		t.Fatal(err)
	}
	s.eventually(machineAPI, script, "the host key", func(secret *corev1.Secret) bool {
		return strings.Contains(string(secret.Data[contract.UserDataField]), "$hostKeyLine = '"+line+"'")
	})
	if shared, isExpected, err := s.first.SharedHostKey(t.Context(), &v1alpha1.WindowsInstance{}); shared != line ||
		isExpected || err != nil {
		t.Errorf("the user data should have %q, not %q; expected: %t, %v", line, shared, isExpected, err)
	}
	fresh := s.machine("fresh", script)
	pinned := func(i *v1alpha1.WindowsInstance, key string) *v1alpha1.WindowsInstance {
		i.Status.HostKey = key
		return i
	}
	byoh := &v1alpha1.WindowsInstance{
		Spec: v1alpha1.WindowsInstanceSpec{Source: &v1alpha1.Source{Kind: v1alpha1.SourceConfigMap, Name: "fresh"}}}
	s.expects("a Machine that has it", instance(fresh), line)
	s.expects("a Machine whose pin is still the shared key", pinned(instance(fresh), line), line)
	s.expects("a Machine whose own key is pinned", pinned(instance(fresh), "ecdsa-sha2-nistp256 AAAA"), "")
	s.expects("a Machine with user data of the user's own", instance(s.machine("own", "my-user-data")), "")
	s.expects("a host of the user's own", byoh, "")
	s.expects("an instance without a source", &v1alpha1.WindowsInstance{}, "")
	another := instance(fresh)
	another.Spec.Source.UID = "another"
	s.expects("a Machine of that name that is gone", another, "")
	gone := instance(fresh)
	gone.Spec.Source.Name = "gone"
	s.expects("a Machine that is gone", gone, "")
	for platform, want := range map[contract.Platform]string{
		contract.PlatformVSphere: "", contract.PlatformNutanix: "", contract.PlatformNone: "",
		contract.PlatformGCP: line, contract.PlatformAzure: line,
	} {
		s.set(func() { s.platform = platform })
		s.expects("a Machine on "+string(platform), instance(fresh), want)
	}
	s.set(func() { s.platform = "" })
	if _, _, err = s.first.SharedHostKey(t.Context(), instance(fresh)); err == nil {
		t.Error("the platform is unknown, but the host key is known")
	}

	// Now the Secret contains a new host key. The hosts of older Machines still have the previous key, which is lost.
	s.set(func() { s.platform, s.now = contract.PlatformAWS, time.Now() })
	s.remove(secret)
	again := s.eventually(namespace, contract.HostKeySecret, "another key",
		func(now *corev1.Secret) bool { return now.UID != secret.UID })
	next, err := userdata.HostKeyLine(again.Data[contract.HostKeyField])
	if err != nil || next == line {
		t.Fatalf("the key is %s again: %v", next, err)
	}
	s.eventually(machineAPI, script, "the other host key", func(secret *corev1.Secret) bool {
		return strings.Contains(string(secret.Data[contract.UserDataField]), next)
	})
	s.expects("a Machine with the key from before", instance(fresh), "")
	s.expects("a Machine from before all keys", instance(old), "")

	// An invalid host key must not be used, and must be reported.
	s.remove(again)
	rubbish := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.HostKeySecret},
		Data: map[string][]byte{contract.HostKeyField: []byte("rubbish")}}
	for s.admin.Create(t.Context(), rubbish.DeepCopy()) != nil {
		s.remove(rubbish.DeepCopy())
	}
	s.problems(contract.ReasonHostKeySecretInvalid)
	s.eventually(machineAPI, script, "no host key", func(secret *corev1.Secret) bool {
		return !strings.Contains(string(secret.Data[contract.UserDataField]), "ssh_host_")
	})
	s.expects("a Machine without", instance(fresh), "")
	s.remove(rubbish)
	s.problems()
}

// While the Secret had different content, a Machine may have been created with that content. The host of such a Machine
// does not have the shared host key.
func TestA09_AMachineMadeWhileOtherUserDataStoodInTheSecretIsNotExpectedToShowTheHostKey(t *testing.T) {
	t.Parallel()
	for name, disrupt := range map[string]func(s *stage, written *corev1.Secret){
		"somebody wrote another script": func(s *stage, _ *corev1.Secret) {
			s.change(machineAPI, script, func(secret *corev1.Secret) {
				secret.Data[contract.UserDataField] = []byte("<powershell>exit</powershell>")
			})
		},
		"somebody deleted it": func(s *stage, written *corev1.Secret) { s.remove(written) },
	} {
		for _, operator := range []string{"at work", "away"} {
			t.Run(name+" while the operator was "+operator, func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				s.key(newLine(t))
				s.set(func() { s.now = time.Now().Add(-time.Hour) })
				stop := s.start()
				published := func(when time.Time) func(secret *corev1.Secret) bool {
					return func(secret *corev1.Secret) bool {
						return secret.Annotations[contract.HostKeyPublishedAnnotation] == when.UTC().Format(time.RFC3339)
					}
				}
				written := s.eventually(machineAPI, script, "since when it has the host key", published(s.clock()))
				if operator == "away" {
					stop()
				}
				made := s.machine("meanwhile", script)
				s.set(func() { s.now = time.Now() })
				disrupt(s, written)
				if operator == "away" {
					s.start()
				}
				s.eventually(machineAPI, script, "that it is published anew", published(s.clock()))
				s.expects("a Machine made meanwhile", instance(made), "")
			})
		}
	}
}

// expects waits until FirstContact returns the expected host key for an instance. The cache may lag behind for a
// moment.
func (s *stage) expects(who string, i *v1alpha1.WindowsInstance, want string) {
	s.t.Helper()
	var got string
	s.until(who+" to be expected with another key", func() bool {
		shared, isExpected, err := s.first.SharedHostKey(s.t.Context(), i)
		if err != nil {
			s.t.Fatal(err)
		}
		if got = ""; isExpected {
			got = shared
		}
		return got == want
	})
}

// machine creates a Machine that gets its user data from this Secret.
func (s *stage) machine(name, secret string) *unstructured.Unstructured {
	s.t.Helper()
	m := &unstructured.Unstructured{
		Object: map[string]any{"spec": map[string]any{"providerSpec": map[string]any{"value": map[string]any{
			"kind": "AWSMachineProviderConfig", "apiVersion": "machine.openshift.io/v1beta1",
			"userDataSecret": map[string]any{"name": secret},
		}}}}}
	m.SetGroupVersionKind(schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "Machine"})
	m.SetNamespace(machineAPI)
	m.SetName(name)
	s.create(m)
	return m
}

func instance(machine *unstructured.Unstructured) *v1alpha1.WindowsInstance {
	return &v1alpha1.WindowsInstance{Spec: v1alpha1.WindowsInstanceSpec{
		Source: &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: machine.GetName(), UID: machine.GetUID()},
	}}
}
