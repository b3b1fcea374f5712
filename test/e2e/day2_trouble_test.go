package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
)

func TestDayTwo_WhatIsWrongIsNamedAndHoldsNothingElseUp(t *testing.T) {
	c := dayTwo(t)
	before := pids(t, c.hosts...)
	ours := newCA(t, "the good one among garbage")
	c.put(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "windows-cas"},
		Data: map[string]string{
			"bundle": "-----BEGIN CERTIFICATE-----\nbm90IGEgY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n\x00garbage\n" + string(ours) + string(bytes.Repeat([]byte("-----BEGIN CERTIFICATE-----\n"), 3)),
		},
	})
	c.lendSettings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) { spec.Trust.AdditionalCA = "windows-cas" })
	c.put(t, &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "hostile"},
		Spec: configv1.ImageDigestMirrorSetSpec{
			ImageDigestMirrors: []configv1.ImageDigestMirrors{
				{Source: "nul.example.com/team", Mirrors: []configv1.ImageMirror{"mirror.example.com/team"}},
				{Source: "registry.invalid/self", Mirrors: []configv1.ImageMirror{"127.0.0.1:9184/self"}},
				{Source: "registry.invalid/loop",
					Mirrors: []configv1.ImageMirror{"registry.invalid/loop", "registry.invalid:443/loop"}},
				{Source: "registry.invalid/empty"},
				{Source: "registry.invalid:5000/good", Mirrors: []configv1.ImageMirror{"mirror.invalid:5000/good"}},
			},
		}})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace,
		Name: contract.PullSecret}}
	lend(t, c, secret, func(o *corev1.Secret) func(*corev1.Secret) {
		old := o.Data
		// The pull secret is valid JSON but no valid pull secret. Invalid JSON can't occur, because the API server
		// refuses it for a Secret of this type.
		o.Data = map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":["hunter2"]}`)}
		return func(o *corev1.Secret) { o.Data = old }
	})
	lend(t, c, &configv1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}},
		func(o *configv1.Proxy) func(*configv1.Proxy) {
			o.Spec.HTTPProxy, o.Spec.HTTPSProxy = "http://%zz:hunter2@proxy.invalid", "socks5://proxy.invalid"
			return func(o *configv1.Proxy) { o.Spec = configv1.ProxySpec{} }
		})
	for reason, names := range map[contract.Reason]string{
		contract.ReasonCertificateRejected: "windows-cas", contract.ReasonMirrorRejected: "hostile",
		contract.ReasonPullSecretInvalid: contract.PullSecret, contract.ReasonProxyInvalid: "HTTP_PROXY",
	} {
		if message := c.rejected(t, reason); !strings.Contains(message, names) || strings.Contains(message, "hunter2") {
			t.Errorf("the message for %s does not name %s, or it contains a secret: %s", reason, names, message)
		}
	}
	c.everywhere(t, "the valid settings to be applied", func(h *fleet.Host) error {
		if n := occurrences(roots(t, h), der(t, ours)); n != 1 {
			return fmt.Errorf("the valid CA is in the root store %d times", n)
		}
		if systemVariable(t, h, "HTTP_PROXY")+systemVariable(t, h, "HTTPS_PROXY") != "" {
			return errors.New("a proxy is set")
		}
		return follows(t.Context(), h, "registry.invalid:5000", "mirror.invalid:5000/good/app")
	})
	c.settled(t)
	undisrupted(t, before, c.hosts...)
}

func TestDayTwo_OfChangesInQuickSuccessionTheLastOneHolds(t *testing.T) {
	c := dayTwo(t)
	before := pids(t, c.hosts...)
	rules := &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "quick"}}
	source := func(n int) string { return fmt.Sprintf("registry%d.invalid:5000", n) }
	set := func(n int) {
		rules.Spec.ImageDigestMirrors = []configv1.ImageDigestMirrors{{Source: source(n),
			Mirrors: []configv1.ImageMirror{"mirror.invalid/x"}}}
	}
	set(0)
	c.put(t, rules)
	const last = 12
	for n := range last {
		edit(t, c, rules, func(*configv1.ImageDigestMirrorSet) { set(n + 1) })
		// The pauses grow from shorter to longer than a node needs to follow a change.
		pause(t, time.Duration(n*n)*4*time.Millisecond)
	}
	c.everywhere(t, "the last rule", func(h *fleet.Host) error {
		return follows(t.Context(), h, source(last), "mirror.invalid/x")
	})
	c.settled(t)
	for _, h := range c.hosts {
		for n := range last {
			if follows(t.Context(), h, source(n), "mirror.invalid/x") == nil {
				t.Errorf("%s still follows rule %d, but only rule %d is valid", h.Name, n, last)
			}
		}
	}
	undisrupted(t, before, c.hosts...)
}

func TestDayTwo_AChangeWhileTheAPIServerIsAwayReachesEveryNodeAfterwards(t *testing.T) {
	c := dayTwo(t)
	before := pids(t, c.hosts...)
	ours := newCA(t, "written just before the outage")
	c.put(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "windows-cas"},
		Data:       map[string]string{"bundle": string(ours)},
	})
	c.lendSettings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) { spec.Trust.AdditionalCA = "windows-cas" })
	// The API server hangs after some hosts may have seen the change, and while requests of the operator and the
	// daemons are open.
	must(t, c.Cluster.PauseAPIServer())
	t.Cleanup(func() { _ = c.Cluster.ResumeAPIServer() })
	pause(t, time.Second)
	must(t, c.Cluster.ResumeAPIServer())
	c.everywhere(t, "the CA after the outage", func(h *fleet.Host) error {
		if n := occurrences(roots(t, h), der(t, ours)); n != 1 {
			return fmt.Errorf("the CA is in the root store %d times", n)
		}
		return nil
	})
	c.settled(t)
	undisrupted(t, before, c.hosts...)
}
