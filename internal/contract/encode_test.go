package contract

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sampleConfidential() Confidential {
	return Confidential{
		Salt:  []byte("0123456789abcdef"),
		Trust: []string{"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
		Mirrors: []MirrorRule{{Source: "quay.io/a", Kind: PullByDigest, Mirrors: []string{"m.example/x"},
			NeverContactSource: true}},
		PullSecret:    []byte(`{"auths":{}}`),
		RegistryTrust: map[string]string{"m.example:5000": "pem"},
		Environment:   map[string]string{"HTTP_PROXY": "http://me:hunter2@proxy:3128"},
		Files:         []File{{Path: `C:\k\tls\certs\tls.key`, Content: "key"}},
	}
}

// belonging returns a manifest with the digest of this Confidential, and the packed Confidential.
func belonging(t *testing.T, c Confidential) (m Manifest, packed []byte) {
	t.Helper()
	m = sample()
	packed, digest, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m.Confidential, m.ConfidentialEnvironment = digest, c.EnvironmentDigest()
	return m, packed
}

func TestAConfidentialSurvivesASecret(t *testing.T) {
	t.Parallel()
	c := sampleConfidential()
	m, packed := belonging(t, c)
	got, err := ParseConfidential(packed, m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got); diff != "" {
		t.Error(diff)
	}
}

func TestAConfidentialThatIsNotTheManifestsIsRefusedWithoutAWordOfIt(t *testing.T) {
	t.Parallel()
	type whole struct {
		c      Confidential
		m      Manifest
		packed []byte // nil means the output of c.Encode
	}
	packed := func(text string) []byte {
		packed, err := Pack([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	raw := func(text string) func(*whole) {
		return func(w *whole) { w.packed, w.m.Confidential = packed(text), Digest([]byte(text)) }
	}
	for name, spoil := range map[string]func(*whole){
		"another content":           func(w *whole) { w.packed = packed("hunter2") },
		"one that is not packed":    func(w *whole) { w.packed = []byte("hunter2") },
		"one that is not ours":      raw(`{"hunter2":1}`),
		"no JSON":                   raw(`hunter2`),
		"no salt":                   func(w *whole) { w.c.Salt = nil },
		"a variable of Windows":     func(w *whole) { w.c.Environment["Path"] = "hunter2" },
		"a variable with a newline": func(w *whole) { w.c.Environment["HTTP_PROXY"] = "hunter2\n" },
		"a file outside":            func(w *whole) { w.c.Files[0].Path = `C:\Windows\x` },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &whole{c: sampleConfidential()}
			w.m, _ = belonging(t, w.c)
			spoil(w)
			if w.packed == nil {
				packed, digest, err := w.c.Encode()
				if err != nil {
					t.Fatal(err)
				}
				w.packed, w.m.Confidential = packed, digest
			}
			_, err := ParseConfidential(w.packed, w.m)
			if p, ok := AsProblem(err); !ok || p.Reason != ReasonManifestInvalid ||
				strings.Contains(p.Detail, "hunter2") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestTheDigestOfAnEnvironmentTellsNothingButThatItChanged(t *testing.T) {
	t.Parallel()
	c := sampleConfidential()
	first := c.EnvironmentDigest()
	c.PullSecret = []byte("other")
	if c.EnvironmentDigest() != first {
		t.Error("the digest changes although the environment is the same")
	}
	c.Environment["HTTP_PROXY"] += "x"
	if c.EnvironmentDigest() == first {
		t.Error("the digest is the same although the environment changed")
	}
	c.Environment["HTTP_PROXY"] = strings.TrimSuffix(c.Environment["HTTP_PROXY"], "x")
	c.Salt = []byte("another salt 012")
	if c.EnvironmentDigest() == first {
		t.Error("without the salt, values could be guessed from the digest")
	}
	c.Environment = nil
	if c.EnvironmentDigest() != "" {
		t.Error("there is no environment, but a digest of it")
	}
}

func TestASecretTakesWhatFitsAndAReasonTellsOfTheRest(t *testing.T) {
	t.Parallel()
	random := make([]byte, 1<<20)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	bundle := base64.StdEncoding.EncodeToString(random[:600<<10]) // 800 KiB of text that decodes to 600 KiB
	if packed, err := Pack([]byte(bundle)); err != nil || len(packed) > 620<<10 {
		t.Errorf("%d bytes, %v", len(packed), err)
	}
	_, err := Pack(random)
	if p, ok := AsProblem(err); !ok || p.Reason != ReasonDesiredStateTooLarge {
		t.Errorf("got %v", err)
	}
	bomb, err := Pack(make([]byte, maxUnpacked))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Unpack(bomb[:len(bomb)-4]); err == nil {
		t.Error("damaged data is accepted")
	}
	if _, err = Unpack([]byte("junk")); err == nil {
		t.Error("junk is accepted")
	}
}

func TestConfidentialVariablesWin(t *testing.T) {
	t.Parallel()
	m := Manifest{EnvironmentVars: map[string]string{"HTTP_PROXY": "public", "NO_PROXY": "localhost"}}
	got := Environment(m, Confidential{Environment: map[string]string{"http_proxy": "secret"}})
	if diff := cmp.Diff(map[string]string{"http_proxy": "secret", "NO_PROXY": "localhost"}, got); diff != "" {
		t.Error(diff)
	}
}
