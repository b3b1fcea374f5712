package credential

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/internal/contract"
)

const namespace = "ns"

func TestThePrivateKeyIsReadFromItsSecret(t *testing.T) {
	t.Parallel()
	secret := func(data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.PrivateKeySecret},
			Data: data}
	}
	for name, test := range map[string]struct {
		secret *corev1.Secret
		reason contract.Reason
	}{
		"no secret":      {nil, contract.ReasonPrivateKeyMissing},
		"no field":       {secret(nil), contract.ReasonPrivateKeyMissing},
		"an empty field": {secret(map[string][]byte{contract.PrivateKeyField: {}}), contract.ReasonPrivateKeyInvalid},
		"no key": {secret(map[string][]byte{contract.PrivateKeyField: []byte("junk")}),
			contract.ReasonPrivateKeyInvalid},
		"a key": {secret(map[string][]byte{contract.PrivateKeyField: []byte("pem")}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := fake.NewClientBuilder()
			if test.secret != nil {
				api = api.WithObjects(test.secret)
			}
			keys := SecretKey{Reader: api.Build(), Namespace: namespace, Parse: func(pem []byte) (string, error) {
				if string(pem) != "pem" {
					return "", contract.NewProblem(contract.ReasonPrivateKeyInvalid, "not a key")
				}
				return "hash", nil
			}}
			key, err := keys.PrivateKey(t.Context())
			problem, _ := contract.AsProblem(err)
			if test.reason == "" && (err != nil || key.Hash != "hash") || test.reason != "" &&
				(problem == nil || problem.Reason != test.reason ||
					!strings.Contains(problem.Detail, "ns/"+contract.PrivateKeySecret)) {
				t.Errorf("key %+v, %v", key, err)
			}
		})
	}
}

func TestAKeyIsParsedOnceWhileItIsTheSame(t *testing.T) {
	t.Parallel()
	var parsed []string
	parse := RememberLast(func(pem []byte) (string, error) {
		parsed = append(parsed, string(pem))
		if string(pem) == "bad" {
			return "", contract.NewProblem(contract.ReasonPrivateKeyInvalid, "bad")
		}
		return "hash of " + string(pem), nil
	})
	for _, pem := range []string{"a", "a", "bad", "bad", "b", "a", "", ""} {
		hash, err := parse([]byte(pem))
		if (err != nil) != (pem == "bad") || err == nil && hash != "hash of "+pem {
			t.Errorf("%q: %q, %v", pem, hash, err)
		}
	}
	if want := []string{"a", "bad", "b", "a", "", ""}; !slices.Equal(parsed, want) {
		t.Errorf("parsed %q, want %q", parsed, want)
	}
}
