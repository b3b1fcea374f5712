package csr

import (
	"reflect"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
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
	} {
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1"},
			Spec: certificatesv1.CertificateSigningRequestSpec{Username: "system:node:win-a"}}
		fill(csr)
		kept, err := Trim(csr)
		trimmed, ok := kept.(*certificatesv1.CertificateSigningRequest)
		if err != nil || !ok || trimmed.Size() > policy.MaxRequestBytes || trimmed.Name != "csr-1" ||
			trimmed.Spec.Username != "system:node:win-a" {
			t.Errorf("%s: %d bytes are kept, %v", what, trimmed.Size(), err)
		}
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
