package csr

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/windows-nodes/wmco/internal/policy"
)

func TestA51_ARequestOfAnySizeCostsTheOperatorLittleMemory(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 1_300_000)
	for what, fill := range map[string]func(c *certificatesv1.CertificateSigningRequest){
		"a large request":   func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Request = []byte(large) },
		"large annotations": func(c *certificatesv1.CertificateSigningRequest) { c.Annotations = map[string]string{"a": large} },
		"a large identity": func(c *certificatesv1.CertificateSigningRequest) {
			c.Spec.Extra = map[string]certificatesv1.ExtraValue{"a": {large}}
		},
		"managers": func(c *certificatesv1.CertificateSigningRequest) {
			c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: large}}
		},
		"10 000 finalizers": func(c *certificatesv1.CertificateSigningRequest) {
			c.Finalizers = slices.Repeat([]string{"example.com/stay"}, 10_000)
		},
		"finalizers of one letter, which take more in memory than they have text": func(
			c *certificatesv1.CertificateSigningRequest) {
			c.Finalizers = slices.Repeat([]string{"a"}, 20_000)
		},
		"10 000 owners": func(c *certificatesv1.CertificateSigningRequest) {
			c.OwnerReferences = slices.Repeat([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a",
				UID: "a"}}, 10_000)
		},
		"owners whose names are short": func(c *certificatesv1.CertificateSigningRequest) {
			c.OwnerReferences = slices.Repeat([]metav1.OwnerReference{{APIVersion: "v1", Kind: "A", Name: "a",
				UID: "a"}}, 3_000)
		},
		"groups": func(c *certificatesv1.CertificateSigningRequest) {
			c.Spec.Groups = slices.Repeat([]string{"group"}, 10_000)
		},
		"the text of a condition": func(c *certificatesv1.CertificateSigningRequest) {
			c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Message: large}}
		},
	} {
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1"},
			Spec: certificatesv1.CertificateSigningRequestSpec{Username: "system:node:win-a"}}
		fill(csr)
		kept, err := Trim(csr)
		trimmed, ok := kept.(*certificatesv1.CertificateSigningRequest)
		if err != nil || !ok || trimmed.Size() > policy.MaxRequestBytes || trimmed.Name != "csr-1" ||
			trimmed.Spec.Username != "system:node:win-a" {
			t.Errorf("%s: %d bytes are cached, %v", what, trimmed.Size(), err)
		}
	}
}

// A request that is already decided must not be decided again, no matter what else it contains.
func TestALargeRequestStaysDecided(t *testing.T) {
	t.Parallel()
	ended := metav1.Now()
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr-1", UID: "1", ResourceVersion: "7", DeletionTimestamp: &ended,
			Finalizers: slices.Repeat([]string{"example.com/stay"}, 10_000)},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeletServingSignerName},
		Status: certificatesv1.CertificateSigningRequestStatus{
			Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied,
				Status: corev1.ConditionTrue, Message: "no"}}}}
	want := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr-1", UID: "1", ResourceVersion: "7", DeletionTimestamp: &ended},
		Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeletServingSignerName},
		Status: certificatesv1.CertificateSigningRequestStatus{
			Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied,
				Status: corev1.ConditionTrue}}}}
	if kept, err := Trim(csr); err != nil || !reflect.DeepEqual(kept, want) {
		t.Errorf("%.500s, %v", fmt.Sprint(kept), err)
	}
}

// An approval writes the metadata in the cached request to the API server. So the cache must keep finalizers and
// owners.
func TestAnApprovalTakesNoFinalizerAndNoOwnerAway(t *testing.T) {
	t.Parallel()
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1",
		Finalizers:      []string{"example.com/stay"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", UID: "a"}}}}
	want := csr.DeepCopy()
	if kept, err := Trim(csr); err != nil || !reflect.DeepEqual(kept, want) {
		t.Errorf("%v, %v", kept, err)
	}
}

func TestWhatADecisionNeedsStaysInTheCache(t *testing.T) {
	t.Parallel()
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr-1", Annotations: map[string]string{"a": "b"}},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: []byte(strings.Repeat("x", policy.MaxRequestBytes)),
			Extra: map[string]certificatesv1.ExtraValue{"a": {"b"}}}}
	want := csr.DeepCopy()
	if kept, err := Trim(csr); err != nil || !reflect.DeepEqual(kept, want) {
		t.Errorf("%v, %v", kept, err)
	}
	gone := cache.DeletedFinalStateUnknown{Key: "csr-1"}
	if kept, err := Trim(gone); err != nil || kept != any(gone) {
		t.Errorf("%v, %v", kept, err)
	}
}
