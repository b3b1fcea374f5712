package mirror_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

func basic(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// secretOf returns a pull secret. Each key is its own user name.
func secretOf(t *testing.T, keys ...string) mirror.PullSecret {
	t.Helper()
	auths := map[string]any{}
	for _, key := range keys {
		auths[key] = map[string]string{"username": strings.ReplaceAll(key, ":", ";"), "password": "x"}
	}
	data, err := json.Marshal(map[string]any{"auths": auths})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := mirror.ParsePullSecret(data)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestWhichCredentialARepositoryGets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys             []string
		host, repository string
		want             string
	}{
		"none":                         {nil, "quay.io", "a", ""},
		"of the registry":              {[]string{"quay.io"}, "quay.io", "a/b", "quay.io"},
		"of another registry":          {[]string{"quay.io"}, "ghcr.io", "a/b", ""},
		"of a host that starts alike":  {[]string{"quay.io"}, "quay.io.evil.example", "a", ""},
		"of the host without its port": {[]string{"quay.io"}, "quay.io:5000", "a", ""},
		"of the host with its port": {[]string{"quay.io:5000", "quay.io"}, "quay.io:5000", "a",
			"quay.io;5000"},
		"the most specific": {[]string{"quay.io", "quay.io/a", "quay.io/a/b"}, "quay.io", "a/b/c",
			"quay.io/a/b"},
		"of the repository itself":    {[]string{"quay.io", "quay.io/a/b"}, "quay.io", "a/b", "quay.io/a/b"},
		"whole components only":       {[]string{"quay.io/a"}, "quay.io", "ab/c", ""},
		"of a namespace, for another": {[]string{"quay.io/a"}, "quay.io", "b/c", ""},
		"a host in capitals":          {[]string{"Quay.io"}, "QUAY.IO", "a", "Quay.io"},
		"a scheme":                    {[]string{"https://quay.io"}, "quay.io", "a", "https;//quay.io"},
		"a scheme in capitals":        {[]string{"HTTPS://quay.io"}, "quay.io", "a", "HTTPS;//quay.io"},
		"a scheme without TLS":        {[]string{"http://quay.io/"}, "quay.io", "a", "http;//quay.io/"},
		"the path of the interface": {[]string{"https://quay.io/v1/"}, "quay.io", "a",
			"https;//quay.io/v1/"},
		"the path of the newer interface":   {[]string{"quay.io/v2/"}, "quay.io", "a", "quay.io/v2/"},
		"a namespace called v1":             {[]string{"quay.io/v1"}, "quay.io", "a", ""},
		"a namespace called v1, for itself": {[]string{"quay.io/v1"}, "quay.io", "v1/a", "quay.io/v1"},
		"a scheme and a namespace":          {[]string{"https://quay.io/a/"}, "quay.io", "b", ""},
		"a scheme and a namespace, for itself": {[]string{"https://quay.io/a/"}, "quay.io", "a/b",
			"https;//quay.io/a/"},
		"plain before one with a scheme":         {[]string{"quay.io", "https://quay.io"}, "quay.io", "a", "quay.io"},
		"plain before one with a scheme, turned": {[]string{"http://quay.io", "quay.io"}, "quay.io", "a", "quay.io"},
		"Docker Hub as docker writes it": {[]string{"https://index.docker.io/v1/"}, "docker.io", "nginx",
			"https;//index.docker.io/v1/"},
		"Docker Hub's address": {[]string{"registry-1.docker.io"}, "docker.io", "org/app",
			"registry-1.docker.io"},
		"Docker Hub's library": {[]string{"docker.io/library"}, "docker.io", "nginx", "docker.io/library"},
		"Docker Hub's own name first": {[]string{"docker.io", "https://index.docker.io/v1/"}, "docker.io", "a/b",
			"docker.io"},
		"IPv6":                          {[]string{"[fd00::1]:5000"}, "[fd00::1]:5000", "a", "[fd00;;1];5000"},
		"an asterisk":                   {[]string{"*.example.com"}, "a.example.com", "b", "*.example.com"},
		"an asterisk for one part":      {[]string{"*.example.com"}, "a.b.example.com", "b", ""},
		"an asterisk with another port": {[]string{"*.example.com"}, "a.example.com:5000", "b", ""},
		"an asterisk with a port": {[]string{"*.example.com:5000"}, "a.example.com:5000", "b",
			"*.example.com;5000"},
		"an asterisk within": {[]string{"reg-*.example.com/team"}, "reg-7.example.com", "team/b",
			"reg-*.example.com/team"},
		"a name before an asterisk": {[]string{"*.example.com/team", "a.example.com"}, "a.example.com", "team/b",
			"a.example.com"},
		"the more specific asterisk": {[]string{"*.example.com", "*.example.com/team", "a*.example.com"},
			"ab.example.com", "team/b", "*.example.com/team"},
		"an asterisk for everything": {[]string{"*"}, "localhost", "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			credential, ok := secretOf(t, c.keys...).For(mirror.At(c.host, c.repository))
			if got := credential.Username; got != c.want || ok != (c.want != "") {
				t.Errorf("got %q, %v; want %q", got, ok, c.want)
			}
		})
	}
}

func TestFormsOfACredential(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entry string
		want  mirror.Credential
		bad   bool
	}{
		"auth": {`{"auth":"` + basic("me:s3cret") + `"}`,
			mirror.Credential{Username: "me", Password: "s3cret"}, false},
		"auth without padding": {`{"auth":"` + strings.TrimRight(basic("me:s3cre"), "=") + `"}`,
			mirror.Credential{Username: "me", Password: "s3cre"}, false},
		"auth with the end of a line": {`{"auth":"` + basic("me:s3cret") + `\n"}`,
			mirror.Credential{Username: "me", Password: "s3cret"}, false},
		"auth with NUL": {`{"auth":"` + basic("me:s3cret\x00\x00") + `"}`,
			mirror.Credential{Username: "me", Password: "s3cret"}, false},
		"a colon in the password": {`{"auth":"` + basic("me:s3:cret") + `"}`,
			mirror.Credential{Username: "me", Password: "s3:cret"}, false},
		"auth before the fields": {`{"auth":"` + basic("me:s3cret") + `","username":"you","password":"x"}`,
			mirror.Credential{Username: "me", Password: "s3cret"}, false},
		"the fields": {`{"username":"me","password":"s3cret","email":"x@y"}`,
			mirror.Credential{Username: "me", Password: "s3cret"}, false},
		"an identity token": {`{"auth":"` + basic("00000000-0000-0000-0000-000000000000:") +
			`","identitytoken":"s3cret"}`,
			mirror.Credential{Username: "00000000-0000-0000-0000-000000000000", IdentityToken: "s3cret"}, false},
		"a registry token": {`{"registrytoken":"s3cret"}`, mirror.Credential{RegistryToken: "s3cret"},
			false},
		"nothing":                      {`{}`, mirror.Credential{}, false},
		"null":                         {`null`, mirror.Credential{}, false},
		"auth that is not base64":      {`{"auth":"s3cret!"}`, mirror.Credential{}, true},
		"auth without a colon":         {`{"auth":"` + basic("s3cret") + `"}`, mirror.Credential{}, true},
		"a text":                       {`"s3cret"`, mirror.Credential{}, true},
		"a number for a password":      {`{"username":"me","password":7}`, mirror.Credential{}, true},
		"a colon in the user name":     {`{"username":"me:too","password":"s3cret"}`, mirror.Credential{}, true},
		"a header in the password":     {`{"username":"me","password":"s3cret\r\nX: y"}`, mirror.Credential{}, true},
		"a header in a token":          {`{"registrytoken":"s3cret\r\nX: y"}`, mirror.Credential{}, true},
		"control characters in base64": {`{"auth":"` + basic("me:s3\ncret") + `"}`, mirror.Credential{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret, err := mirror.ParsePullSecret([]byte(`{"auths":{"quay.io":` + c.entry +
				`,"ghcr.io":{"registrytoken":"other"}}}`))
			if err != nil {
				t.Fatal(err)
			}
			got, ok := secret.For(mirror.At("quay.io", "a"))
			if got != c.want || ok != (c.want != mirror.Credential{}) {
				t.Errorf("the secret is not the written one (ok %v)", ok)
			}
			if unusable := secret.Unusable(); (len(unusable) == 1 && unusable[0] == `"quay.io"`) != c.bad ||
				len(unusable) > 1 {
				t.Errorf("unusable: %v", unusable)
			}
			if other, ok := secret.For(mirror.At("ghcr.io", "a")); !ok || other.RegistryToken != "other" {
				t.Error("the other entry is lost")
			}
		})
	}
}

func TestAnEntryWithoutContentHidesThatOfTheRegistry(t *testing.T) {
	t.Parallel()
	secret, err := mirror.ParsePullSecret([]byte(`{"auths":{"quay.io":{"registrytoken":"x"},"quay.io/public":{}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := secret.For(mirror.At("quay.io", "public/a")); ok {
		t.Error("a credential is sent although the entry is empty")
	}
	if _, ok := secret.For(mirror.At("quay.io", "private/a")); !ok {
		t.Error("the credential is missing")
	}
}

func TestGarbageForAPullSecret(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "s3cret", "null", "[]", `"s3cret"`, "{", `{"auths":["s3cret"]}`, `{"auths":"s3cret"}`,
		`{"auths":{"a":{}}} s3cret`, "\x00\xff", "{\"auths\":{\"s3cret", strings.Repeat("[", 1<<20),
		"auths:\n  s3cret: {}",
	} {
		_, err := mirror.ParsePullSecret([]byte(text))
		problem, ok := contract.AsProblem(err)
		if !ok || problem.Reason != contract.ReasonPullSecretInvalid || problem.Reason.Number() == 0 ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%.30q: %v", text, err)
		}
	}
	for _, text := range []string{"{}", `{"auths":null}`, `{"auths":{}}`, `{"credsStore":"x"}`} {
		if secret, err := mirror.ParsePullSecret([]byte(text)); err != nil || len(secret.Unusable()) > 0 {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestKeysThatAreNoRegistry(t *testing.T) {
	t.Parallel()
	keys := []string{"", "/", "*", "registry", "ftp://quay.io", "https://", "https://me:s3cret@quay.io", "quay.io?x",
		"../..", "a b.io", "quay.io/A", "*.io/../x", "[*.io]", "x\ny.io", "quay.io:0"}
	secret := secretOf(t, append(keys, "quay.io", "*.example.com", "https://index.docker.io/v1/")...)
	if got := secret.Unusable(); len(got) != len(keys) {
		t.Errorf("%q", got)
	}
	for _, host := range []string{"quay.io", "a.example.com", "docker.io"} {
		if _, ok := secret.For(mirror.At(host, "a/b")); !ok {
			t.Errorf("%s has no credential", host)
		}
	}
}

func TestSecretsNeverShowThemselves(t *testing.T) {
	t.Parallel()
	secret, err := mirror.ParsePullSecret([]byte(`{"auths":{"s3cret.io":{"auth":"` + basic("s3cret:s3cret") +
		`","identitytoken":"s3cret"},"*.s3cret.io":{"registrytoken":"s3cret"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	credential, ok := secret.For(mirror.At("s3cret.io", "a"))
	if !ok {
		t.Fatal("none")
	}
	for _, value := range []any{secret, &secret, credential, &credential, []any{secret, credential},
		map[string]any{"a": credential}, struct{ C mirror.Credential }{credential}} {
		var text strings.Builder
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
			fmt.Fprintf(&text, verb, value)
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(encoded)
		slog.New(slog.NewTextHandler(&text, nil)).Info("x", "value", value)
		slog.New(slog.NewJSONHandler(&text, nil)).Info("x", "value", value)
		if strings.Contains(text.String(), "s3cret") || strings.Contains(text.String(), "733363726574") ||
			strings.Contains(text.String(), basic("s3cret:s3cret")) {
			t.Errorf("%s", text.String())
		}
	}
}
