package olm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	// repeat is how often the operator applies all objects again. This restores objects that a user deleted or changed,
	// and creates the RoleBinding of a new namespace.
	repeat = 10 * time.Minute
	// startTimeout is how long the operator tries to apply all objects when it starts. This includes the wait until the
	// API server enforces the policies.
	startTimeout = time.Minute
	retryPeriod  = time.Second
	// retryLater is the pause after a failure while the operator is running. At its start, the pause is retryPeriod.
	retryLater  = 10 * time.Second
	callTimeout = 10 * time.Second
)

// Installer applies the objects that OLM can't install.
type Installer struct {
	client    client.Client
	namespace string
	objects   []*unstructured.Unstructured
	// mark is the text that sign adds to denial messages. Releases with different policies have different marks.
	mark string
}

// New creates an installer for the operator in namespace. The namespace must be the namespace that the bundle suggests:
// two installations in a cluster would overwrite each other's rights and policies. The client c must read from the API
// server and not from a cache.
func New(c client.Client, namespace string) (*Installer, error) {
	if namespace != contract.OperatorNamespace {
		return nil, fmt.Errorf("OLM installed the operator in the namespace %s: the bundle works in %s only, once in "+
			"a cluster", namespace, contract.OperatorNamespace)
	}
	all, err := Manifests(namespace)
	if err != nil {
		return nil, err
	}
	parts, err := Split(all, namespace)
	if err != nil {
		return nil, err
	}
	for _, object := range parts.Operator {
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		// When an administrator removes the operator, they delete these objects by this label.
		labels[contract.ManagedByLabel] = contract.OperatorServiceAccount
		object.SetLabels(labels)
	}
	mark, err := sign(parts.Operator)
	if err != nil {
		return nil, err
	}
	return &Installer{client: c, namespace: namespace, objects: parts.Operator, mark: mark}, nil
}

// sign adds a digest of all policies to the denial message of the policy `probed`. So a denial shows whether the API
// server enforces these policies or still the policies of the previous release.
func sign(objects []*unstructured.Unstructured) (mark string, err error) {
	sum := sha256.New()
	var last *unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() != policy && object.GetKind() != policyBinding {
			continue
		}
		text, err := object.MarshalJSON()
		if err != nil {
			return "", err
		}
		_, _ = sum.Write(text)
		if object.GetKind() == policy && object.GetName() == probed {
			last = object
		}
	}
	if last == nil {
		return "", fmt.Errorf("there is no policy %s", probed)
	}
	mark = "policies " + hex.EncodeToString(sum.Sum(nil))[:16]
	validations, _, err := unstructured.NestedSlice(last.Object, "spec", "validations")
	if err != nil {
		return "", err
	}
	for _, v := range validations {
		if validation, ok := v.(map[string]any); ok {
			validation["message"] = fmt.Sprintf("%s (%s)", validation["message"], mark)
		}
	}
	return mark, unstructured.SetNestedSlice(last.Object, validations, "spec", "validations")
}

// Install applies all objects. It binds no rights before the API server enforces the policies. After a failure, it
// tries again for a minute. Then it returns an error with the object that couldn't be applied and the reason.
func (i *Installer) Install(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, retryPeriod, true, func(ctx context.Context) (bool, error) {
		last = i.apply(ctx)
		return last == nil, nil
	})
	if last != nil {
		return fmt.Errorf("applying what OLM does not install: %w", last)
	}
	return err
}

// Start applies all objects again every few minutes until ctx ends. After a failure, it tries again sooner.
func (i *Installer) Start(ctx context.Context) error {
	for {
		pause := repeat
		if err := i.apply(ctx); err != nil && ctx.Err() == nil {
			pause = retryLater
			logr.FromContextOrDiscard(ctx).Error(err, "applying what OLM does not install failed; retrying", "after",
				pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// NeedLeaderElection returns true, because only one operator at a time may apply the objects.
func (*Installer) NeedLeaderElection() bool { return true }

func (i *Installer) apply(ctx context.Context) error {
	enforced := false
	for _, object := range i.objects {
		if kind := object.GetKind(); !enforced && (kind == roleBinding || kind == clusterRoleBinding) {
			if err := i.enforced(ctx); err != nil {
				return err
			}
			enforced = true
		}
		err := i.call(ctx, func(ctx context.Context) error {
			what := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
			options := []client.ApplyOption{client.FieldOwner(contract.OperatorServiceAccount)}
			if object.GetKind() != runtimeClass {
				options = append(options, client.ForceOwnership)
			}
			return i.client.Apply(ctx, what, options...)
		})
		if apierrors.IsNotFound(err) && object.GetNamespace() != i.namespace {
			continue // this cluster doesn't have the namespace
		}
		if meta.IsNoMatchError(err) && (object.GetKind() == mutatingPolicy || object.GetKind() == mutatingBinding) {
			continue // this API server doesn't have the kind
		}
		if object.GetKind() == runtimeClass && (apierrors.IsConflict(err) || apierrors.IsInvalid(err)) {
			continue // leave the RuntimeClass of a different owner unchanged: its handler may differ
		}
		if err != nil {
			return fmt.Errorf("applying the %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// `enforced` returns an error unless the API server enforces these policies. To find out, it creates a Secret as a dry
// run: the policy `probed` must deny this request.
func (i *Installer) enforced(ctx context.Context) error {
	probe := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: "policy-probe"}}
	err := i.call(ctx, func(ctx context.Context) error { return i.client.Create(ctx, probe, client.DryRunAll) })
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), i.mark): // a policy denied it, not a quota
		return nil
	case err == nil || strings.Contains(err.Error(), probed): // no policies, or only the previous release's policies
		return errors.New("the admission policies are not enforced yet")
	}
	return fmt.Errorf("finding out whether the admission policies are enforced: %w", err)
}

func (*Installer) call(ctx context.Context, request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return request(ctx)
}
