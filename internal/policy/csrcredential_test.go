package policy_test

import (
	"crypto"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// credential sets the id of the token with which the request was sent.
func credential(in policy.CSRInput, id string) policy.CSRInput {
	in.CSR.Spec.Extra = map[string]certificatesv1.ExtraValue{contract.CredentialIDExtra: {id}}
	return in
}

// der returns the public part of a key.
func der(key crypto.Signer) []byte { return must(x509.MarshalPKIXPublicKey(key.Public())) }

func TestA50_ABootstrapTokenIsGoodForOneHostAndOneKey(t *testing.T) {
	t.Parallel()
	own, other := ecdsaKey(elliptic.P256()), ecdsaKey(elliptic.P256())
	cases := map[string]struct {
		id, owner string
		keys      [][]byte
		want      policy.CSRVerdict
		reason    policy.CSRReason
	}{
		"the token of this join": {id: "JTI=a", want: policy.CSRApprove,
			reason: policy.CSRKubeletApproved},
		"an earlier token of this join": {id: "JTI=a0", want: policy.CSRApprove,
			reason: policy.CSRKubeletApproved},
		"another host's token": {id: "JTI=b", owner: "b", want: policy.CSRRefuse,
			reason: policy.CSRCredentialForeign},
		"a token that no join was given": {id: "JTI=x", want: policy.CSRWait,
			reason: policy.CSRCredentialUnknown},
		"a token without an id": {want: policy.CSRWait, reason: policy.CSRCredentialUnknown},
		"a name that begins like the token's id": {id: "JTI=", want: policy.CSRWait,
			reason: policy.CSRCredentialUnknown},
		"the same key again": {id: "JTI=a", keys: [][]byte{der(own)}, want: policy.CSRApprove,
			reason: policy.CSRKubeletApproved},
		"a second key": {id: "JTI=a", keys: [][]byte{der(other)}, want: policy.CSRRefuse,
			reason: policy.CSRKeyOfAnother},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := firstKubelet()
			s.key = own
			in := s.input()
			in.CSR.Spec.Extra = nil
			if c.id != "" {
				in = credential(in, c.id)
			}
			in.Instances[0].Credentials = []string{"JTI=a0", "JTI=a"}
			in.CredentialOwner, in.CredentialKeys = c.owner, c.keys
			if got := policy.DecideCSR(in); got.Verdict != c.want || got.Reason != c.reason {
				t.Errorf("decided %s %s (%s), want %s %s", got.Verdict, got.Reason, got.Message, c.want, c.reason)
			}
		})
	}
}

// If a kubelet gives up a request, it creates another key and a new request. The earlier request stays pending. Other
// approvers may decide about it, so the operator does not deny it. Kubernetes deletes requests after a day.
func TestA50_ARequestThatNobodyWaitsForStaysPending(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(in *policy.CSRInput)
		want   policy.CSRVerdict
		reason policy.CSRReason
	}{
		"its token got a certificate for a later key": {want: policy.CSRRefuse, reason: policy.CSRKeyOfAnother,
			change: func(in *policy.CSRInput) { in.CredentialKeys = [][]byte{der(ecdsaKey(elliptic.P256()))} }},
		"the join is over, and its tokens with it": {want: policy.CSRWait, reason: policy.CSRPhaseEarly,
			change: func(in *policy.CSRInput) {
				in.Instances[0].Phase, in.Instances[0].Credentials = v1alpha1.PhaseReady, nil
				in.Node = nodeA(corev1.ConditionTrue)
			}},
		"the host is being removed": {want: policy.CSRWait, reason: policy.CSRInstanceLeaving,
			change: func(in *policy.CSRInput) { in.Instances[0].Leaving = true }},
		"the host is gone": {want: policy.CSRIgnore, reason: policy.CSRNameForeign,
			change: func(in *policy.CSRInput) { in.Instances = nil }},
		"the host was added again": {want: policy.CSRWait, reason: policy.CSRCredentialUnknown,
			change: func(in *policy.CSRInput) { in.Instances[0].Credentials = []string{"JTI=later"} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := firstKubelet().input()
			c.change(&in)
			if got := policy.DecideCSR(in); got.Verdict != c.want || got.Reason != c.reason {
				t.Errorf("decided %s %s (%s), want %s %s", got.Verdict, got.Reason, got.Message, c.want, c.reason)
			}
		})
	}
}

func TestA50_ARenewalNeedsNoToken(t *testing.T) {
	t.Parallel()
	in := kubeletRenewal().input()
	in.Instances[0].Credentials = nil
	if got := policy.DecideCSR(in); got.Verdict != policy.CSRApprove {
		t.Errorf("decided %s %s: %s", got.Verdict, got.Reason, got.Message)
	}
}

func TestATokensIDIsReadFromItsClaims(t *testing.T) {
	t.Parallel()
	claims := func(text string) string { return "e30." + base64.RawURLEncoding.EncodeToString([]byte(text)) + ".c2ln" }
	if id, err := policy.CredentialIDOf(claims(`{"jti":"4d7f","sub":"x"}`)); id != "JTI=4d7f" || err != nil {
		t.Errorf("read %q and %v", id, err)
	}
	for _, token := range []string{"", "s3cret", "a.!.c", claims(`{}`), claims(`[]`), claims(`{"jti":7}`)} {
		if id, err := policy.CredentialIDOf(token); id != "" || err == nil {
			t.Errorf("of %q read %q", token, id)
		} else if token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("the error has the token: %v", err)
		}
	}
}
