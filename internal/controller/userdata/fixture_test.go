package userdata

import (
	"context"
	"crypto/ed25519"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/problem"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/plane"
	"github.com/windows-nodes/wmco/lab/scheme"
)

const namespace = contract.OperatorNamespace

// stage is a real API server with the installed manifests. The controller runs with the operator's own account.
type stage struct {
	t     *testing.T
	lab   *cluster.Cluster
	admin client.Client
	found *problem.State
	first FirstContact

	mu       sync.Mutex
	platform contract.Platform
	now      time.Time
	// join is the command with which hosts join without a key. It is empty while the command is unknown.
	join string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	lab := plane.Start(t, cluster.Options{Audit: true})
	s := &stage{t: t, lab: lab, platform: contract.PlatformAWS, now: time.Now()}
	var err error
	if s.admin, err = client.New(lab.Admin(), client.Options{Scheme: scheme.New(t)}); err != nil {
		t.Fatal(err)
	}
	plane.Ship(t, lab)
	dirs, err := cluster.OpenShiftCRDDirs(t.Context(), "machine/v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = cluster.InstallCRDs(t.Context(), lab.Admin(),
		cluster.CRDOptions{Paths: dirs, Names: []string{"machines.machine.openshift.io"},
			Filter: cluster.OpenShiftDefault})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs the controller with the shipped rights, and returns a function that stops it.
func (s *stage) start() (stop func()) {
	s.t.Helper()
	account, _, err := s.lab.ServiceAccountConfig(s.t.Context(), namespace, contract.OperatorServiceAccount, time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(account, ctrl.Options{
		Scheme: scheme.New(s.t), Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Secret{}: {Namespaces: map[string]cache.Config{namespace: {}}}}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.first = FirstContact{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: namespace, Platform: s.where}
	s.found = problem.NewState()
	err = Setup(mgr, Options{Problems: s.found,
		Namespace: namespace, Platform: s.where, Now: s.clock, recheck: 50 * time.Millisecond,
		Join:      s.command,
		PublicKey: func(ctx context.Context) (PublicKey, error) { return publicKey(ctx, mgr.GetClient()) },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// publicKey returns the content of the Secret with the key, as if it were a public key.
func publicKey(ctx context.Context, reader client.Reader) (PublicKey, error) {
	secret := &corev1.Secret{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: contract.PrivateKeySecret}, secret)
	if apierrors.IsNotFound(err) {
		return PublicKey{}, contract.NewProblem(contract.ReasonPrivateKeyMissing, "there is none")
	}
	line := string(secret.Data[contract.PrivateKeyField])
	if err == nil && !strings.HasPrefix(line, "ssh-") {
		return PublicKey{}, contract.NewProblem(contract.ReasonPrivateKeyInvalid, "it is invalid")
	}
	return PublicKey{Line: line, Hash: "hash-of-" + line[len(line)-8:]}, err
}

func (s *stage) where(context.Context) (contract.Platform, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.platform == "" {
		return "", contract.NewProblem(contract.ReasonClusterFactsIncomplete, "nobody knows")
	}
	return s.platform, nil
}

func (s *stage) command(context.Context, time.Time) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.join == "" {
		return "", contract.NewProblem(contract.ReasonClusterFactsIncomplete, "nobody knows")
	}
	return s.join, nil
}

func (s *stage) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *stage) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *stage) create(o client.Object) {
	s.t.Helper()
	if err := s.admin.Create(s.t.Context(), o); err != nil {
		s.t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
}

func (s *stage) remove(o client.Object) {
	s.t.Helper()
	if err := s.admin.Delete(s.t.Context(), o); err != nil {
		s.t.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

// change changes a Secret as an administrator does.
func (s *stage) change(where, name string, change func(secret *corev1.Secret)) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), 10*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			secret, err := s.read(where, name)
			if err != nil {
				return false, err
			}
			change(secret)
			err = s.admin.Update(ctx, secret)
			return err == nil, ignore(err, apierrors.IsConflict)
		})
	if err != nil {
		s.t.Fatalf("changing %s of %s: %v", name, where, err)
	}
}

func ignore(err error, is func(error) bool) error {
	if is(err) {
		return nil
	}
	return err
}

func (s *stage) read(where, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.admin.Get(s.t.Context(), client.ObjectKey{Namespace: where, Name: name}, secret)
	return secret, err
}

// key writes a key into the Secret with the private key.
func (s *stage) key(line string) {
	s.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.PrivateKeySecret}}
	if _, err := s.read(namespace, contract.PrivateKeySecret); apierrors.IsNotFound(err) {
		secret.Data = map[string][]byte{contract.PrivateKeyField: []byte(line)}
		s.create(secret)
		return
	}
	s.change(namespace, contract.PrivateKeySecret,
		func(secret *corev1.Secret) { secret.Data = map[string][]byte{contract.PrivateKeyField: []byte(line)} })
}

func newLine(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// eventually waits until a Secret meets a condition.
func (s *stage) eventually(where, name, what string, holds func(secret *corev1.Secret) bool) *corev1.Secret {
	s.t.Helper()
	var last *corev1.Secret
	err := wait.PollUntilContextTimeout(s.t.Context(), 10*time.Millisecond, 2*time.Minute, true,
		func(context.Context) (bool, error) {
			secret, err := s.read(where, name)
			if err != nil {
				return false, ignore(err, apierrors.IsNotFound)
			}
			last = secret
			return holds(secret), nil
		})
	if err != nil {
		s.t.Fatalf("%s of %s: waited too long: %s: %v\n%v", name, where, what, err, last)
	}
	return last
}

// authorizes reports whether the user data authorises this key and no other key.
func authorizes(line string) func(secret *corev1.Secret) bool {
	return func(secret *corev1.Secret) bool {
		script := string(secret.Data[contract.UserDataField])
		return strings.Contains(script, "$publicKey = '"+line+"'\n") && strings.Count(script, "$publicKey = ") == 1
	}
}

// problems waits until the controller reports problems with exactly these reasons.
func (s *stage) problems(want ...contract.Reason) {
	s.t.Helper()
	var got []*contract.Problem
	err := wait.PollUntilContextTimeout(s.t.Context(), 10*time.Millisecond, 2*time.Minute, true,
		func(context.Context) (bool, error) {
			got = s.found.Problems()
			if len(got) != len(want) {
				return false, nil
			}
			for i, p := range got {
				if p.Reason != want[i] {
					return false, nil
				}
			}
			return true, nil
		})
	if err != nil {
		s.t.Fatalf("the problems are %v, want %v", got, want)
	}
}
