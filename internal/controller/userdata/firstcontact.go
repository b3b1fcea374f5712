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
	"github.com/windows-nodes/wmco/internal/userdata"
)

// margin is how much later than the key's publication a Machine must have been made to be expected
// to have it. It covers what is between the two times: the caches of the machine controller, and
// clocks that differ. A Machine made meanwhile is trusted at first contact, like a host of the
// user's own.
const margin = time.Minute

// FirstContact tells which host key a machine shows that nobody has reached yet. It implements
// journey.FirstContact.
type FirstContact struct {
	// Cached reads Secrets of the operator's namespace; Live reads Machines past the cache.
	Cached, Live client.Reader
	// Namespace of the operator.
	Namespace string
	// Platform tells where the cluster runs, or a *contract.Problem.
	Platform func(ctx context.Context) (contract.Platform, error)
}

// SharedHostKey answers the host key, "<type> <base64>", that the user data gave the host of an
// instance; empty when the host was not made from our user data, or nothing says that it was. It
// reads again with every call.
func (f FirstContact) SharedHostKey(ctx context.Context, instance *v1alpha1.WindowsInstance) (string, error) {
	source := instance.Spec.Source
	if source == nil || source.Kind != v1alpha1.SourceMachine {
		return "", nil
	}
	if pinned := instance.Status.HostKey; pinned != "" && !strings.HasPrefix(pinned, ssh.KeyAlgoED25519+" ") {
		return "", nil // a key of its own; the shared one is of this type
	}
	platform, err := f.Platform(ctx)
	if err != nil {
		return "", err
	}
	if !userdata.CarriesHostKey(platform) {
		return "", nil
	}
	key, err := f.present(ctx)
	if key == nil || err != nil {
		return "", err
	}
	since, published := key.publishedSince()
	if !published {
		return "", nil
	}
	made, err := f.madeFromOurs(ctx, source)
	if err != nil || made.Before(since.Add(margin)) {
		return "", err
	}
	return key.line, nil
}

// PresentHostKey answers the host key that user data has now: also hosts that somebody lists may be made from it. It
// reads again with every call.
func (f FirstContact) PresentHostKey(ctx context.Context) (string, error) {
	key, err := f.present(ctx)
	if key == nil || err != nil {
		return "", err
	}
	return key.line, nil
}

// present is the shared host key; nil when there is none.
func (f FirstContact) present(ctx context.Context) (*hostKey, error) {
	key, err := readHostKey(ctx, f.Cached, f.Namespace)
	if problem, ok := contract.AsProblem(err); ok && problem.Reason == contract.ReasonHostKeySecretInvalid {
		return nil, nil // then the user data has none, either, and the settings say what is wrong
	}
	return key, err
}

// madeFromOurs is when the Machine of an instance was made; the zero time when it is gone, or was
// given other user data than ours.
func (f FirstContact) madeFromOurs(ctx context.Context, source *v1alpha1.Source) (time.Time, error) {
	machine := &unstructured.Unstructured{}
	machine.SetGroupVersionKind(schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1",
		Kind: "Machine"})
	err := f.Live.Get(ctx, client.ObjectKey{Namespace: contract.MachineAPINamespace, Name: source.Name}, machine)
	if apierrors.IsNotFound(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading Machine %s: %w", source.Name, err)
	}
	// The provider specs of all clouds call it the same.
	secret, _, _ := unstructured.NestedString(machine.Object, "spec", "providerSpec", "value", "userDataSecret", "name")
	if source.UID != "" && source.UID != machine.GetUID() || secret != contract.UserDataSecret {
		return time.Time{}, nil
	}
	return machine.GetCreationTimestamp().Time, nil
}
