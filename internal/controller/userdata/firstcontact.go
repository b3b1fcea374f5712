package userdata

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/internal/userdata"
)

// If a Machine is created at least this long after the shared host key was published, its host certainly has this key.
// Hosts of earlier Machines are trusted at first contact, like hosts that a user lists. The margin covers delays of the
// machine controller's caches, and differences between clocks.
const margin = time.Minute

// FirstContact implements journey.FirstContact: it returns the host key of a Machine's host at first contact.
type FirstContact struct {
	// Cached reads Secrets in the operator's namespace. Live reads Machines and their user data from the API server.
	Cached, Live client.Reader
	// Namespace is the operator's namespace.
	Namespace string
	// Platform returns the cluster's platform. If it is unknown, Platform returns a *contract.Problem.
	Platform func(ctx context.Context) (contract.Platform, error)
}

// SharedHostKey implements journey.FirstContact.
func (f FirstContact) SharedHostKey(ctx context.Context, instance *v1alpha1.WindowsInstance) (line string,
	isExpected bool, err error) {
	key, err := readHostKey(ctx, f.Cached, f.Namespace)
	if _, invalid := contract.AsProblem(err); invalid || key == nil && err == nil {
		return "", false, nil // the user data has no host key, and the settings report why
	}
	if err != nil {
		return "", false, err
	}
	source, pinned := instance.Spec.Source, instance.Status.HostKey
	if source == nil || source.Kind != v1alpha1.SourceMachine ||
		pinned != "" && !strings.HasPrefix(pinned, ssh.KeyAlgoED25519+" ") { // the shared key is an Ed25519 key
		return key.line, false, nil
	}
	platform, err := f.Platform(ctx)
	if err != nil || !userdata.CarriesHostKey(platform) {
		return key.line, false, err
	}
	userData, err := readUserData(ctx, f.Live)
	if err != nil {
		return "", false, err
	}
	since, published := hostKeySince(userData, key.line)
	if !published {
		return key.line, false, nil
	}
	machine, err := f.Machine(ctx, source)
	return key.line, machine != nil && !machine.CreatedAt.Before(since.Add(margin)), err
}

// ByItself reports whether the user data makes the hosts of new Machines join by themselves.
func (f FirstContact) ByItself(ctx context.Context) (bool, error) {
	userData, err := readUserData(ctx, f.Live)
	if err != nil {
		return false, err
	}
	hash, isOurs := userData.Annotations[contract.PublicKeyHashAnnotation]
	return isOurs && hash == "", nil
}

// Authorizes reports whether the hosts of Machines that are created now accept the key with this hash. It returns false
// if the user data is missing or another client manages it.
func (f FirstContact) Authorizes(ctx context.Context, publicKeyHash string) (bool, error) {
	userData, err := readUserData(ctx, f.Live)
	return err == nil && foreign(userData) == "" &&
		userData.Annotations[contract.PublicKeyHashAnnotation] == publicKeyHash, err
}

// Machine reads a Machine from the API server, or returns nil if it is missing, being deleted, or has other user data.
func (f FirstContact) Machine(ctx context.Context, source *v1alpha1.Source) (*policy.CSRMachine, error) {
	machine := &unstructured.Unstructured{}
	machine.SetGroupVersionKind(schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1",
		Kind: "Machine"})
	err := f.Live.Get(ctx, client.ObjectKey{Namespace: contract.MachineAPINamespace, Name: source.Name}, machine)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Machine %s: %w", source.Name, err)
	}
	// This field has the same name in the provider specs of all clouds.
	secret, _, _ := unstructured.NestedString(machine.Object, "spec", "providerSpec", "value", "userDataSecret", "name")
	if source.UID != "" && source.UID != machine.GetUID() || secret != contract.UserDataSecret ||
		machine.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	node, _, _ := unstructured.NestedString(machine.Object, "status", "nodeRef", "name")
	return &policy.CSRMachine{CreatedAt: machine.GetCreationTimestamp().Time, NodeRef: node}, nil
}
