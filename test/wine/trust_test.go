//go:build linux

package wine_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/test/clustertest"
)

// additional is the name of the ConfigMap with additional CAs.
const additional = "additional-ca"

// trust makes every node trust these CAs as well.
func (s *stage) trust(t *testing.T, bundle string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: additional},
		Data: map[string]string{"ca": bundle}}
	if err := s.Client.Create(t.Context(), object); err != nil {
		if err = s.Client.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	s.settings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) { spec.Trust.AdditionalCA = additional })
}

func TestA25_ACAIsTrustedExactlyOnceAndThenNotAtAll(t *testing.T) {
	s := shared
	h := s.host(puller)
	host := windows(t, h)
	// Settings of an earlier test disappear from the hosts with a delay.
	s.awaitSecrets(t, h, "nothing of other tests",
		func(c contract.Confidential) bool { return len(c.Mirrors) == 0 && len(c.RegistryTrust) == 0 })
	foreign, ours := newCA(t, "foreign"), newCA(t, "ours")
	if err := host.Trust.Add(t.Context(), foreign.Bytes); err != nil {
		t.Fatal(err)
	}
	before, err := host.Trust.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(ours))
	s.trust(t, text+text) // the bundle contains the CA twice
	s.await(t, "the CA to be trusted",
		func(ctx context.Context) (bool, string, error) { return trusted(ctx, host.Trust.List, ours.Bytes, 1) })
	s.await(t, "somebody to remove it", func(ctx context.Context) (bool, string, error) {
		err := host.Trust.Remove(ctx, ours.Bytes)
		if errors.Is(err, winos.ErrDenied) { // the user has added it again at once
			return false, "the daemon was at the store at that moment", nil
		}
		return err == nil, "", err
	})
	s.await(t, "it to be trusted again after somebody removed it (A13)",
		func(ctx context.Context) (bool, string, error) {
			return trusted(ctx, host.Trust.List, ours.Bytes, 1)
		})
	s.settings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) { spec.Trust.AdditionalCA = "" })
	s.await(t, "the CA to be gone",
		func(ctx context.Context) (bool, string, error) { return trusted(ctx, host.Trust.List, ours.Bytes, 0) })
	after, err := host.Trust.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before) {
		t.Errorf("there were %d certificates, now %d", len(before), len(after))
	}
	if ok, how, err := trusted(t.Context(), host.Trust.List, foreign.Bytes, 1); err != nil || !ok {
		t.Errorf("a certificate that the operator did not add has changed: %s, %v", how, err)
	}
}

func newCA(t *testing.T, name string) *pem.Block {
	t.Helper()
	text, err := clustertest.Certificate(name)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	return block
}

// trusted reports whether a certificate is in the root store the given number of times.
func trusted(ctx context.Context, list func(context.Context) ([][]byte, error), der []byte, times int) (bool, string,
	error) {
	all, err := list(ctx)
	found := 0
	for _, c := range all {
		if bytes.Equal(c, der) {
			found++
		}
	}
	return found == times, fmt.Sprintf("the certificate is in the store %d times, of %d", found, len(all)), err
}
