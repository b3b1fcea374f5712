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

// margin is the minimum time between the publication of the host key and the creation of a Machine. If a Machine is
// created later, its host must show the published host key. Otherwise the operator trusts the host at first contact,
// like a host that a user lists. margin covers delays of the machine controller's caches, and clocks that differ.
const margin = time.Minute

// FirstContact returns the host key that a machine shows at the first contact. It implements journey.FirstContact.
type FirstContact struct {
	// Cached reads Secrets of the operator's namespace. Live reads Machines and their user data from the API server.
	Cached, Live client.Reader
	// Namespace of the operator.
	Namespace string
	// Platform returns the cluster's platform, or a *contract.Problem.
	Platform func(ctx context.Context) (contract.Platform, error)
}

// SharedHostKey returns the host key, "<type> <base64>", that the user data gave the host of an instance. It is empty
// unless it is certain that the host was made from our user data. It reads again with every call.
func (f FirstContact) SharedHostKey(ctx context.Context, instance *v1alpha1.WindowsInstance) (string, error) {
	source := instance.Spec.Source
	if source == nil || source.Kind != v1alpha1.SourceMachine {
		return "", nil
	}
	if pinned := instance.Status.HostKey; pinned != "" && !strings.HasPrefix(pinned, ssh.KeyAlgoED25519+" ") {
		return "", nil // the shared key is always an Ed25519 key
	}
	platform, err := f.Platform(ctx)
	if err != nil {
		return "", err
	}
	if !userdata.CarriesHostKey(platform) {
		return "", nil
	}
	key, err := f.PresentHostKey(ctx)
	if key == "" || err != nil {
		return "", err
	}
	userData, err := readUserData(ctx, f.Live)
	if err != nil {
		return "", err
	}
	since, published := hostKeySince(userData, key)
	if !published {
		return "", nil
	}
	machine, err := f.Machine(ctx, source)
	if err != nil || machine == nil || machine.CreatedAt.Before(since.Add(margin)) {
		return "", err
	}
	return key, nil
}

// ByItself reports whether the user data at the time of a Machine's creation makes its host join by itself.
func (f FirstContact) ByItself(ctx context.Context, createdAt time.Time) (bool, error) {
	userData, err := readUserData(ctx, f.Live)
	if err != nil {
		return false, err
	}
	hash, isOurs := userData.Annotations[contract.PublicKeyHashAnnotation]
	since, _ := time.Parse(time.RFC3339, userData.Annotations[contract.WaySinceAnnotation])
	return isOurs && (hash == "") != createdAt.Before(since), nil
}

// Authorizes reports whether Machines that are created now accept the key with this hash. It returns false while the
// user data is missing or foreign.
func (f FirstContact) Authorizes(ctx context.Context, publicKeyHash string) (bool, error) {
	userData, err := readUserData(ctx, f.Live)
	return err == nil && foreign(userData) == "" &&
		userData.Annotations[contract.PublicKeyHashAnnotation] == publicKeyHash, err
}

// PresentHostKey returns the host key in the current user data. Hosts that a user lists may have been created from this
// user data as well. It reads again with every call.
func (f FirstContact) PresentHostKey(ctx context.Context) (string, error) {
	key, err := readHostKey(ctx, f.Cached, f.Namespace)
	if _, invalid := contract.AsProblem(err); invalid || key == nil && err == nil {
		return "", nil // the user data has no host key, and the settings report why
	}
	if err != nil {
		return "", err
	}
	return key.line, nil
}

// Machine reads a Machine from the API server. It returns nil if the Machine is gone, is being deleted, or has other
// user data.
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
