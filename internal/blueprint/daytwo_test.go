package blueprint_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// said returns the messages and reasons of rejected settings.
func said(desired blueprint.Desired) (text string, all []contract.Reason) {
	for _, p := range desired.Rejected {
		text += p.Detail + "\n"
		all = append(all, p.Reason)
	}
	return text, all
}

// trusting renders the desired state with these CA bundles.
func trusting(t *testing.T, in blueprint.Input, bundles ...string) blueprint.Desired {
	t.Helper()
	in.Facts.Trust = nil
	for _, text := range bundles {
		in.Facts.Trust = append(in.Facts.Trust,
			blueprint.Bundle{Source: "a bundle", PEM: []byte(text), Pending: text == "pending"})
	}
	return render(t, in)
}

func TestCAsAreTrustedOnceHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	one, two := newCA(t, "one"), newCA(t, "two")
	selfSigned := string(pair(t, "old root").Certificate) // issued before certificates had a CA flag
	issued := string(pair(t, "leaf", "issued").Certificate)
	key := string(pair(t, "key").Key)
	expired := newCA(t, "old", "expired")
	want := []string{one, two}
	slices.Sort(want)
	for name, test := range map[string]struct {
		bundles []string
		trust   []string
		says    string
	}{
		"in order":            {[]string{one + two}, want, ""},
		"the other way round": {[]string{two + one}, want, ""},
		"twice":               {[]string{one + two + one}, want, ""},
		"in two bundles":      {[]string{one, two + one}, want, ""},
		"with comments and spaces": {[]string{"# one\r\n" + one + "\n\n  # two\n" +
			strings.ReplaceAll(two, "\n", "\r\n")}, want, ""},
		"with headers": {[]string{one + strings.Replace(two, "-----\n", "-----\nName: two\n\n", 1)},
			want, ""},
		"beside one that is damaged": {[]string{one +
			"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + two}, want,
			"certificate 2 can't be parsed"},
		"beside one that is cut off": {[]string{one + two + "-----BEGIN CERTIFICATE-----\nAAAA\n"}, want,
			"1 certificates are damaged"},
		"beside one that is no PEM": {[]string{one + "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n" +
			two}, want, "1 certificates are damaged"},
		"beside a key": {[]string{one + key + two}, want,
			"certificate 2 is none, but of type PRIVATE KEY"},
		"beside one of a server":     {[]string{one + issued + two}, want, "certificate 2 (CN=leaf) is no CA"},
		"an old root without a mark": {[]string{selfSigned}, []string{selfSigned}, ""},
		"an expired one": {[]string{expired}, []string{expired},
			"certificate 1 (CN=old) expired on 2025-12-31; it is kept"},
		"nothing":                   {[]string{""}, nil, ""},
		"junk":                      {[]string{"junk"}, nil, "there is no certificate in PEM"},
		"more flaws than one reads": {[]string{one + strings.Repeat(issued, 9)}, []string{one}, "and 6 more"},
		"hostile text in its subject": {[]string{string(pair(t, "a\nb\x1b[31m"+strings.Repeat("x", 50),
			"issued").Certificate)}, nil, `is no CA`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			desired := trusting(t, input(), test.bundles...)
			if diff := cmp.Diff(test.trust, desired.Confidential.Trust); diff != "" {
				t.Error(diff)
			}
			text, all := said(desired)
			if !strings.Contains(text, test.says) || (test.says == "") != (text == "") ||
				strings.ContainsAny(strings.TrimSpace(text), "\n\x1b") {
				t.Errorf("the message is %q", text)
			}
			for _, reason := range all {
				if reason != contract.ReasonCertificateRejected {
					t.Errorf("reason %s", reason)
				}
			}
		})
	}
}

func TestAnExpiredCAThatTheClusterInjectsIsNobodysSetting(t *testing.T) {
	t.Parallel()
	in := input()
	expired, damaged := newCA(t, "old", "expired"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	in.Facts.Trust = []blueprint.Bundle{{Source: "trusted-ca", Injected: true, PEM: []byte(expired)}}
	desired := render(t, in)
	if text, _ := said(desired); text != "" || !slices.Equal(desired.Confidential.Trust, []string{expired}) {
		t.Errorf("the message is %q, and nodes trust %d CAs", text, len(desired.Confidential.Trust))
	}
	in.Facts.Trust[0].PEM = []byte(expired + damaged)
	if text, _ := said(render(t, in)); !strings.Contains(text, "certificate 2 can't be parsed") {
		t.Errorf("for a damaged bundle, the message is %q", text)
	}
}

func TestNothingIsTakenAwayWhileABundleIsNotThere(t *testing.T) {
	t.Parallel()
	one, two := newCA(t, "one"), newCA(t, "two")
	in := input()
	in.Facts.RegistryTrust = map[string]blueprint.Bundle{"m.example:5000": {PEM: []byte(newCA(t, "registry"))}}
	in.Previous = trusting(t, in, one)
	in.Facts.RegistryTrust = nil
	for name, test := range map[string]struct {
		bundles []string
		kept    bool
	}{
		"it waits to be filled":              {[]string{"pending", two}, true},
		"it was filled with junk":            {[]string{"junk", two}, true},
		"it holds no CA any more":            {[]string{string(pair(t, "leaf", "issued").Certificate), two}, true},
		"it is empty, as somebody wanted it": {[]string{"", two}, false},
		"there is none":                      {[]string{two}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := trusting(t, in, test.bundles...).Confidential
			if slices.Contains(got.Trust, one) != test.kept || !slices.Contains(got.Trust, two) ||
				(len(got.RegistryTrust) == 1) != test.kept {
				t.Errorf("nodes trust %d CAs, registries %v", len(got.Trust), got.RegistryTrust)
			}
		})
	}
}

func TestARegistrysInvalidBundleKeepsItsOwnCertificatesOnly(t *testing.T) {
	t.Parallel()
	in := input()
	bundle := func(pem string) blueprint.Bundle { return blueprint.Bundle{Source: "a bundle", PEM: []byte(pem)} }
	in.Facts.RegistryTrust = map[string]blueprint.Bundle{"bad.example": bundle(newCA(t, "bad")),
		"old.example": bundle(newCA(t, "old")), "m.example": bundle(newCA(t, "m"))}
	in.Previous = trusting(t, in, newCA(t, "proxy"))
	in.Facts.RegistryTrust = map[string]blueprint.Bundle{"bad.example": bundle("junk"),
		"m.example": bundle(newCA(t, "m, the next"))}
	got := trusting(t, in, newCA(t, "proxy, the next")).Confidential
	want := []string{newCA(t, "bad"), newCA(t, "m, the next"), newCA(t, "proxy, the next")}
	slices.Sort(want)
	if !slices.Equal(got.Trust, want) {
		t.Errorf("nodes trust %d certificates, want 3", len(got.Trust))
	}
	if !maps.Equal(got.RegistryTrust, map[string]string{"bad.example": newCA(t, "bad"),
		"m.example": newCA(t, "m, the next")}) {
		t.Errorf("registries have %v", slices.Sorted(maps.Keys(got.RegistryTrust)))
	}
}

func TestARegistrysCAsAreTrustedForItAndByWindows(t *testing.T) {
	t.Parallel()
	in := input()
	in.Facts.RegistryTrust = map[string]blueprint.Bundle{
		"m.example:5000": {Source: "m", PEM: []byte(newCA(t, "m"))},
		"n.example":      {Source: "n", PEM: []byte("junk")},
	}
	desired := render(t, in)
	if got := desired.Confidential; len(got.RegistryTrust) != 1 ||
		got.RegistryTrust["m.example:5000"] != newCA(t, "m") || !slices.Contains(got.Trust, newCA(t, "m")) {
		t.Errorf("got %+v", got)
	}
	if text, _ := said(desired); !strings.HasPrefix(text, "n: ") {
		t.Errorf("the message is %q", text)
	}
}

func TestAProxyReachesNodesWithItsPasswordAside(t *testing.T) {
	t.Parallel()
	good := blueprint.Proxy{HTTP: "http://p:3128", HTTPS: "http://me:hunter2@p:3128", None: ".svc"}
	for name, test := range map[string]struct {
		proxy          blueprint.Proxy
		public, secret map[string]string
		says           string
	}{
		"none": {blueprint.Proxy{}, nil, nil, ""},
		"without secrets": {blueprint.Proxy{HTTP: "http://p:3128", None: "a,b"},
			map[string]string{"HTTP_PROXY": "http://p:3128", "NO_PROXY": "a,b"}, nil, ""},
		"with a password": {good, map[string]string{"HTTP_PROXY": "http://p:3128", "NO_PROXY": ".svc"},
			map[string]string{"HTTPS_PROXY": "http://me:hunter2@p:3128"}, ""},
		"with a token": {blueprint.Proxy{HTTP: "http://hunter2@p"}, nil,
			map[string]string{"HTTP_PROXY": "http://hunter2@p"}, ""},
		"no URL": {blueprint.Proxy{HTTP: "http://hunter2:x@%zz"}, nil, nil,
			"HTTP_PROXY of the cluster's proxy is not a URL"},
		"no scheme": {blueprint.Proxy{HTTPS: "me:hunter2@p:3128"}, nil, nil,
			"HTTPS_PROXY of the cluster's proxy is not a URL"},
		"another scheme": {blueprint.Proxy{HTTPS: "socks5://hunter2@p"}, nil, nil, "http:// or https://"},
		"no host":        {blueprint.Proxy{HTTP: "http://"}, nil, nil, "has no host"},
		"a line break":   {blueprint.Proxy{HTTP: "http://p\r\nhunter2", None: "ok"}, nil, nil, "control characters"},
		"too long":       {blueprint.Proxy{None: strings.Repeat("x", 40000)}, nil, nil, "longer than Windows allows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input()
			in.Facts.Proxy = test.proxy
			desired := render(t, in)
			if !maps.Equal(desired.Manifest.EnvironmentVars, test.public) ||
				!maps.Equal(desired.Confidential.Environment, test.secret) {
				t.Errorf("public %v, secret %v", desired.Manifest.EnvironmentVars, desired.Confidential.Environment)
			}
			text, _ := said(desired)
			if !strings.Contains(text, test.says) || (test.says == "") != (text == "") ||
				strings.Contains(text, "hunter2") {
				t.Errorf("the message is %q", text)
			}
			data, err := desired.Manifest.Data()
			if err != nil || strings.Contains(strings.Join(slices.Collect(maps.Values(data)), ""), "hunter2") {
				t.Errorf("the password is public, %v", err)
			}
			if again := render(t, in); again.Revision != desired.Revision {
				t.Error("the same settings have two revisions")
			}
			// Now make the setting invalid: nodes must keep its previous value.
			in.Facts.Proxy = good
			in.Previous = render(t, in)
			in.Facts.Proxy = blueprint.Proxy{HTTP: "junk", HTTPS: "junk", None: "a\nb"}
			if kept := render(t, in); kept.Revision != in.Previous.Revision || len(kept.Rejected) != 3 {
				t.Errorf("the previous values changed to %v and %v",
					kept.Manifest.EnvironmentVars, kept.Confidential.Environment)
			}
		})
	}
}

func TestAPullSecretThatCanNotBeReadLeavesTheLastOne(t *testing.T) {
	t.Parallel()
	in := input()
	in.Facts.PullSecret = []byte(`{"auths":{"m.example":{"auth":"bWU6aHVudGVyMg=="}}}`)
	in.Previous = render(t, in)
	for name, test := range map[string]struct {
		raw  string
		want string
	}{
		"junk":         {"hunter2", string(in.Facts.PullSecret)},
		"blank":        {" ", string(in.Facts.PullSecret)},
		"another":      {`{"auths":{}}`, `{"auths":{}}`},
		"none, wanted": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := in
			in.Facts.PullSecret = []byte(test.raw)
			desired := render(t, in)
			text, _ := said(desired)
			if string(desired.Confidential.PullSecret) != test.want || strings.Contains(text, "hunter2") {
				t.Errorf("got %s, %q", desired.Confidential.PullSecret, text)
			}
		})
	}
}

func TestA23_EntriesOfThePullSecretThatNoNodeCanUseAreNamed(t *testing.T) {
	t.Parallel()
	in := input()
	raw, err := os.ReadFile("testdata/pull-secret.json")
	if err != nil {
		t.Fatal(err)
	}
	in.Facts.PullSecret = raw
	desired := render(t, in)
	text, _ := said(desired)
	if string(desired.Confidential.PullSecret) != string(raw) {
		t.Error("the usable entries don't reach nodes")
	}
	for _, name := range []string{"registry.example.com", "reg_under.example.com", "1.dkr.ecr.us-east-1.amazonaws.com"} {
		if !strings.Contains(text, `"`+name+`"`) {
			t.Errorf("the message lacks %s: %s", name, text)
		}
	}
	for _, usable := range []string{"quay.io", "8443", "*.corp.example.com", "dXNlcjpwJTQwc3M=", "not base64!"} {
		if strings.Contains(text, usable) {
			t.Errorf("%s is named: %s", usable, text)
		}
	}
	if len(desired.Rejected) != 1 || desired.Rejected[0].Reason != contract.ReasonPullSecretInvalid {
		t.Errorf("%+v", desired.Rejected)
	}
	in.Facts.PullSecret = []byte(`{"auths":{"https://me:hunter2@quay.io":{}}}`)
	if text, _ = said(render(t, in)); !strings.Contains(text, "quay.io") || strings.Contains(text, "hunter2") {
		t.Errorf("a name has a password: %s", text)
	}
}

func service(t *testing.T, desired blueprint.Desired, name string) contract.Service {
	t.Helper()
	i := slices.IndexFunc(desired.Manifest.Services, func(s contract.Service) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no service %s", name)
	}
	return desired.Manifest.Services[i]
}

func TestWhatWaitsForTheBudgetOnDayTwo(t *testing.T) {
	t.Parallel()
	all := []string{"containerd", "hybrid-overlay-node", "kube-proxy", "kubelet"}
	for name, test := range map[string]struct {
		change func(*testing.T, *blueprint.Input)
		want   []string
	}{
		"A21 kubelet's client CA": {func(_ *testing.T,
			in *blueprint.Input) {
			in.Facts.KubeletCA = certificate("rotated")
		}, nil},
		"A22 mirrors": {func(_ *testing.T, in *blueprint.Input) { in.Facts.Mirrors = in.Facts.Mirrors[:1] }, nil},
		"A22 registries": {func(_ *testing.T, in *blueprint.Input) {
			in.Facts.Registries = contract.RegistrySources{Restricted: true, Allowed: []string{"quay.io"}}
		}, nil},
		"A23 pull secret": {func(_ *testing.T, in *blueprint.Input) { in.Facts.PullSecret = []byte(`{"auths":{}}`) },
			nil},
		"A24 proxy": {func(_ *testing.T, in *blueprint.Input) { in.Facts.Proxy.HTTP = "http://other" }, all},
		"A24 its password": {func(_ *testing.T, in *blueprint.Input) { in.Facts.Proxy.HTTPS = "http://me:hunter3@p" },
			all},
		"A24 no proxy": {func(_ *testing.T, in *blueprint.Input) { in.Facts.Proxy = blueprint.Proxy{} }, all},
		"A25 trust": {func(t *testing.T, in *blueprint.Input) {
			t.Helper()
			in.Facts.Trust = append(in.Facts.Trust, blueprint.Bundle{PEM: []byte(newCA(t, "new"))})
		}, nil},
		"A16 log age only": {func(_ *testing.T, in *blueprint.Input) { in.Spec.Logging.MaxFiles = new(int32(3)) },
			[]string{"hybrid-overlay-node"}},
		"kubelet's": {func(_ *testing.T, in *blueprint.Input) { in.Spec.Kubelet.Config = fragment(`{"maxPods": 9}`) },
			[]string{"kubelet"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input()
			dayTwo(t, &in)
			before := render(t, in)
			in.Previous = before
			test.change(t, &in)
			after := render(t, in)
			if before.Revision == after.Revision {
				t.Error("the desired state did not change")
			}
			if got := blueprint.Restarts(before.Manifest, after.Manifest); !slices.Equal(got, test.want) {
				t.Errorf("restarts %v, want %v", got, test.want)
			}
			if got, want := blueprint.Drains(before.Manifest, after.Manifest), name == "kubelet's"; got != want {
				t.Errorf("drains %v", got)
			}
		})
	}
}

func TestTheSameSettingsHaveTheSameVersionInEveryOrderAndAfterEveryRestart(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 6))
		in := random(r)
		dayTwo(t, &in)
		first := render(t, in)
		if err := first.Confidential.Validate(); err != nil {
			t.Fatal(err)
		}
		// After a restart, the operator knows only the published objects.
		data, _, err := first.Confidential.Encode()
		if err != nil {
			t.Fatal(err)
		}
		secret, err := contract.ParseConfidential(data, first.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		in.Previous = blueprint.Desired{Revision: first.Revision, Manifest: first.Manifest, Confidential: secret}
		in.AcceptedKubelet, in.Salt = first.KubeletFragment, secret.Salt
		shuffled := map[string]blueprint.Bundle{}
		for _, host := range slices.Backward(slices.Sorted(maps.Keys(in.Facts.RegistryTrust))) {
			shuffled[host] = in.Facts.RegistryTrust[host]
		}
		in.Facts.RegistryTrust = shuffled
		r.Shuffle(len(in.Facts.Trust), func(i, j int) {
			in.Facts.Trust[i], in.Facts.Trust[j] = in.Facts.Trust[j],
				in.Facts.Trust[i]
		})
		if second := render(t, in); second.Revision != first.Revision {
			t.Fatalf("seed %d: versions %s and %s", seed, first.Revision, second.Revision)
		}
		in.Salt = []byte("fedcba9876543210")
		if other := render(t, in); other.Revision == first.Revision {
			t.Fatal("the revision does not depend on the salt, so a reader could guess the confidential values")
		}
	}
}

func TestAStateThatNoSecretHoldsIsAProblem(t *testing.T) {
	t.Parallel()
	in := input()
	r := rand.New(rand.NewPCG(1, 7))
	junk := make([]byte, 2<<20)
	for i := range junk {
		junk[i] = byte('a' + r.IntN(26))
	}
	in.Facts.PullSecret = []byte(`{"auths":{"m.example":{"auth":"bWU6aHVudGVyMg=="}},"x":"` + string(junk) + `"}`)
	_, err := blueprint.Render(in)
	if got := reasons(err); !slices.Equal(got, []contract.Reason{contract.ReasonDesiredStateTooLarge}) {
		t.Errorf("got %v", err)
	}
}

func FuzzBundle(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN CERTIFICATE-----"))
	f.Add([]byte("\x00-----BEGIN X-----\n-----END X-----\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		good := newCA(t, "good")
		desired := trusting(t, input(), good, string(raw))
		if !slices.Contains(desired.Confidential.Trust, good) || !slices.IsSorted(desired.Confidential.Trust) {
			t.Fatalf("a bad bundle changes another one: %v", desired.Confidential.Trust)
		}
		again := trusting(t, input(), strings.Join(desired.Confidential.Trust, ""))
		if again.Revision != desired.Revision {
			t.Fatal("the trusted certificates are not normalized")
		}
	})
}

func FuzzProxy(f *testing.F) {
	f.Add("http://me:pw@p:3128", "a,b")
	f.Add("http://[::1%25x]:1", "\x00")
	f.Add("HTTPS://P", " ")
	f.Fuzz(func(t *testing.T, address, none string) {
		in := input()
		in.Facts.Proxy = blueprint.Proxy{HTTP: address, HTTPS: address, None: none}
		desired, err := blueprint.Render(in)
		if err != nil {
			t.Fatalf("an invalid proxy prevents the rendering: %v", err)
		}
		if got := desired.Manifest.EnvironmentVars["HTTP_PROXY"]; strings.Contains(got, "@") || got != "" &&
			got != address {
			t.Fatalf("%q became %q in public", address, got)
		}
	})
}
