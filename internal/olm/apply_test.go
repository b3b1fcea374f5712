package olm_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/olm"
)

// api simulates an API server. applied lists the kinds of the objects that were applied, and forced the kinds that were
// applied with force. enforces reports whether the API server enforces the policies. message is the denial message of
// the probed policy. refuses returns the error for an object that is applied, or nil.
type api struct {
	applied  []string
	forced   []string
	enforces func() bool
	message  string
	// otherwise is the API server's answer to the probe while it doesn't enforce the policies.
	otherwise error
	refuses   func(kind, namespace string) error
}

func (a *api) client() client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build(), interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			u := object.(interface {
				GetKind() string
				GetName() string
				GetNamespace() string
				UnstructuredContent() map[string]any
			})
			a.applied = append(a.applied, u.GetKind())
			if slices.Contains(options, client.ApplyOption(client.ForceOwnership)) {
				a.forced = append(a.forced, u.GetKind())
			}
			if u.GetKind() == "ValidatingAdmissionPolicy" && u.GetName() == "windows-operator-secret" {
				validations, _, err := unstructured.NestedSlice(u.UnstructuredContent(), "spec", "validations")
				if err != nil {
					return err
				}
				a.message, _ = validations[0].(map[string]any)["message"].(string)
			}
			if a.refuses == nil {
				return nil
			}
			return a.refuses(u.GetKind(), u.GetNamespace())
		},
		Create: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.CreateOption) error {
			if !slices.Contains(options, client.CreateOption(client.DryRunAll)) {
				return errors.New("the object would be written")
			}
			if a.enforces() {
				return denied(a.message)
			}
			return a.otherwise
		},
	})
}

func forbidden(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "policy-probe", errors.New(why))
}

func denied(message string) error {
	return forbidden("ValidatingAdmissionPolicy 'windows-operator-secret' with binding 'windows-operator-secret' denied " +
		"request: " + message)
}

func (a *api) install(t *testing.T) error {
	t.Helper()
	installer, err := olm.New(a.client(), contract.OperatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	return installer.Install(t.Context())
}

func (a *api) binds() bool {
	return slices.ContainsFunc(a.applied, func(kind string) bool { return strings.HasSuffix(kind, "RoleBinding") })
}

func TestA66_NothingIsBoundBeforeThePoliciesAreEnforced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &api{enforces: func() bool { return false }}
		if err := a.install(t); err == nil || !strings.Contains(err.Error(), "not enforced yet") {
			t.Errorf("the policies were never enforced: %v", err)
		}
		if len(a.applied) == 0 || a.binds() {
			t.Errorf("applied although the policies were not enforced: %v", a.applied)
		}
		a = &api{enforces: func() bool { return false }, otherwise: forbidden("exceeded quota: small")}
		if err := a.install(t); err == nil || a.binds() {
			t.Errorf("the refusal of a quota counts as the policy's: %v", err)
		}
		a = &api{enforces: func() bool { return false }, otherwise: denied("the operator writes its own Secrets only")}
		if err := a.install(t); err == nil || !strings.Contains(err.Error(), "not enforced yet") || a.binds() {
			t.Errorf("the previous release's policies count as the new ones: %v", err)
		}
		asked := 0
		a = &api{enforces: func() bool { asked++; return asked > 2 }}
		if err := a.install(t); err != nil || !a.binds() {
			t.Errorf("the policies were enforced after a moment: %v", err)
		}
	})
}

func TestA66_OLMInstallsInOneNamespaceOnly(t *testing.T) {
	t.Parallel()
	a := &api{enforces: func() bool { return true }}
	if _, err := olm.New(a.client(), "windows"); err == nil || !strings.Contains(err.Error(), contract.OperatorNamespace) {
		t.Errorf("%v", err)
	}
}

func TestA66_AMissingNamespaceIsPassedOver(t *testing.T) {
	t.Parallel()
	a := &api{enforces: func() bool { return true }, refuses: func(_, namespace string) error {
		if namespace == contract.ClusterAPINamespace {
			return apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
		}
		return nil
	}}
	if err := a.install(t); err != nil || !slices.Contains(a.applied, "ClusterRoleBinding") {
		t.Errorf("%v, applied %v", err, a.applied)
	}
}

func TestA73_AnAPIServerWithoutMutatingPoliciesIsPassedOver(t *testing.T) {
	t.Parallel()
	a := &api{enforces: func() bool { return true }, refuses: func(kind, _ string) error {
		if strings.HasPrefix(kind, "Mutating") {
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: kind}}
		}
		return nil
	}}
	if err := a.install(t); err != nil || !a.binds() || !slices.Contains(a.applied, "MutatingAdmissionPolicyBinding") {
		t.Errorf("%v, applied %v", err, a.applied)
	}
}

func TestA72_SomebodyElsesRuntimeClassStaysAndStopsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer error
		fails  bool
	}{
		"another owner":   {answer: apierrors.NewApplyConflict(nil, "conflict with kubectl")},
		"another handler": {answer: apierrors.NewInvalid(schema.GroupKind{Kind: "RuntimeClass"}, "windows2022", nil)},
		"no right":        {answer: forbidden("no right"), fails: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &api{enforces: func() bool { return true }, refuses: func(kind, _ string) error {
				if kind == "RuntimeClass" {
					return c.answer
				}
				return nil
			}}
			err := a.install(t)
			if !slices.Contains(a.applied, "RuntimeClass") || (err != nil) != c.fails || a.binds() == c.fails {
				t.Errorf("%s: %v, applied %v", name, err, a.applied)
			}
			if slices.Contains(a.forced, "RuntimeClass") || !slices.Contains(a.forced, "ConfigMap") {
				t.Errorf("%s: ownership of %v was forced", name, a.forced)
			}
		})
	}
}

func TestA66_ARefusedPolicyNamesItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &api{refuses: func(kind, _ string) error {
			if kind == "ValidatingAdmissionPolicyBinding" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "any"}, "x", errors.New("no right"))
			}
			return nil
		}}
		err := a.install(t)
		if err == nil || !strings.Contains(err.Error(), "applying the ValidatingAdmissionPolicyBinding windows-") || a.binds() {
			t.Errorf("%v, applied %v", err, a.applied)
		}
	})
}
