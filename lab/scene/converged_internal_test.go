package scene

import (
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// calm returns the state of a scene with one host that has converged.
func calm() state {
	s := state{namespace: contract.OperatorNamespace, config: &v1alpha1.WindowsMachineConfig{}, places: &corev1.ConfigMap{}}
	s.config.Generation = 2
	s.config.Status.DesiredRevision = "b"
	s.config.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAvailable,
		Status: metav1.ConditionTrue, ObservedGeneration: 2}}
	s.config.Status.Rollout = v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutIdle, Revision: "b", Total: 1, Updated: 1}
	s.instances.Items = []v1alpha1.WindowsInstance{{
		ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.1", UID: "u", ResourceVersion: "7"},
		Status: v1alpha1.WindowsInstanceStatus{Phase: v1alpha1.PhaseReady, NodeName: "win-001",
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse,
				Reason: string(contract.ReasonNodeReady)}}},
	}}
	s.nodes.Items = []corev1.Node{{
		ObjectMeta: metav1.ObjectMeta{Name: "win-001", Labels: map[string]string{}, Annotations: map[string]string{
			contract.RevisionAnnotation: "b", contract.DesiredRevisionAnnotation: "b"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
			Status: corev1.ConditionTrue}}},
	}}
	s.requests.Items = []certificatesv1.CertificateSigningRequest{{Status: certificatesv1.CertificateSigningRequestStatus{
		Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}}}}
	s.places.Data = map[string]string{"places": `[{"name":"gone"}]`}
	return s
}

// The requester is the same for all hosts that join, so it doesn't identify the host. The description must contain
// more.
func TestARequestThatIsPendingIsNamedWithItsTimeAndCredential(t *testing.T) {
	t.Parallel()
	s := calm()
	request := &s.requests.Items[0]
	request.Name, request.Status.Conditions = "csr-a", nil
	request.CreationTimestamp = metav1.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)
	request.Spec.Username = "bootstrapper"
	request.Spec.Extra = map[string]certificatesv1.ExtraValue{contract.CredentialIDExtra: {"JTI=a"}}
	want := "certificate request csr-a of bootstrapper is pending since 03:04:05, with the credential JTI=a"
	if behind := s.unsettled(1); len(behind) != 1 || behind[0] != want {
		t.Errorf("it says %q, want %q", behind, want)
	}
}

// If the response to kubelet's first request is lost, kubelet sends a request with a new key, and its host joins with a
// new token. docs/troubleshooting.md describes what happens to the first request.
func TestAFirstRequestWhoseJoinIsOverIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := calm()
	request := &s.requests.Items[0]
	request.Status.Conditions = nil
	request.Spec.Username = contract.BootstrapUser(contract.OperatorNamespace)
	request.Spec.Extra = map[string]certificatesv1.ExtraValue{contract.CredentialIDExtra: {"JTI=a"}}
	if behind := s.unsettled(1); len(behind) > 0 {
		t.Errorf("it says %q of a request with a token that no join has", behind)
	}
	for why, change := range map[string]func(s *state){
		"a join has its token": func(s *state) {
			s.instances.Items[0].Status.BootstrapCredentials = []string{"JTI=a"}
		},
		"it is no bootstrap token": func(s *state) { s.requests.Items[0].Spec.Extra = nil },
		"somebody else asks":       func(s *state) { s.requests.Items[0].Spec.Username = "system:node:win-001" },
	} {
		s := calm()
		request.DeepCopyInto(&s.requests.Items[0])
		change(&s)
		if behind := s.unsettled(1); len(behind) != 1 {
			t.Errorf("%s: it says %q", why, behind)
		}
	}
}

func TestWhatHasNotConvergedIsNamed(t *testing.T) {
	t.Parallel()
	if behind := calm().unsettled(1); len(behind) > 0 {
		t.Fatalf("a calm state is unsettled: %v", behind)
	}
	for want, change := range map[string]func(s *state){
		"1 instances and 1 nodes of 2 hosts":          nil,
		"10.0.0.1 is Confirming":                      func(s *state) { s.instances.Items[0].Status.Phase = v1alpha1.PhaseConfirming },
		"10.0.0.1 has failed 2 times":                 func(s *state) { s.instances.Items[0].Status.Failures = 2 },
		"10.0.0.1 holds a slot":                       func(s *state) { s.instances.Items[0].Status.Slot = &v1alpha1.Slot{} },
		"10.0.0.1 failed at c":                        func(s *state) { s.instances.Items[0].Status.FailedRevision = "c" },
		"10.0.0.1 has a slot":                         func(s *state) { s.places.Data["places"] = `[{"name":"u"}]` },
		"the list of slots can't be read":             func(s *state) { s.places.Data["places"] = "?" },
		"10.0.0.1 has no node":                        func(s *state) { s.nodes.Items[0].Name = "win-002" },
		"10.0.0.1 is not Ready":                       func(s *state) { s.nodes.Items[0].Status.Conditions[0].Status = corev1.ConditionUnknown },
		"10.0.0.1 is cordoned":                        func(s *state) { s.nodes.Items[0].Spec.Unschedulable = true },
		"10.0.0.1 is at revision a and must be at b":  func(s *state) { s.nodes.Items[0].Annotations[contract.RevisionAnnotation] = "a" },
		"10.0.0.1 has the annotation":                 func(s *state) { s.nodes.Items[0].Annotations[contract.RebootRequestedAnnotation] = "" },
		"10.0.0.1 has the label":                      func(s *state) { s.nodes.Items[0].Labels[contract.UpgradingLabel] = "true" },
		"is pending":                                  func(s *state) { s.requests.Items[0].Status.Conditions = nil },
		"the rollout of b is Halted":                  func(s *state) { s.config.Status.Rollout.Phase = v1alpha1.RolloutHalted },
		"is Idle with 0 of 1 updated":                 func(s *state) { s.config.Status.Rollout.Updated = 0 },
		"the rollout of b is Idle":                    func(s *state) { s.config.Generation = 3 },
		"settings are not published":                  func(s *state) { s.config.Status.Conditions[0].Status = metav1.ConditionFalse },
		"10.0.0.1 is at revision b and must be at cc": func(s *state) { s.config.Status.DesiredRevision = "cc" },
	} {
		s, hosts := calm(), 1
		if change == nil {
			hosts = 2
		} else {
			change(&s)
		}
		if behind := strings.Join(s.unsettled(hosts), "\n"); !strings.Contains(behind, want) {
			t.Errorf("%q is not named: %s", want, behind)
		}
	}
}
