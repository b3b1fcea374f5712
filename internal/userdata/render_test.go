package userdata_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/pem"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/userdata"
)

var update = flag.Bool("update", false, "write the golden files anew")

const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK0wmN/Cr3JXqmLW7u+g9pTh+wyqDHpSQEIQczXkVx9q"

// platforms are all documented platforms.
var platforms = []contract.Platform{
	contract.PlatformAWS, contract.PlatformAzure, contract.PlatformGCP, contract.PlatformVSphere,
	contract.PlatformNutanix, contract.PlatformNone,
}

// hostKey returns the same shared host key each time. But its PEM text differs, because OpenSSH's format has a random
// part.
func hostKey(tb testing.TB) []byte {
	tb.Helper()
	return marshal(tb, ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize))))
}

func marshal(tb testing.TB, key any) []byte {
	tb.Helper()
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(block)
}

func render(tb testing.TB, in userdata.Input) string {
	tb.Helper()
	text, err := userdata.Render(in)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func TestEveryPlatformIsGivenWhatItsGoldenFileSays(t *testing.T) {
	t.Parallel()
	for _, platform := range platforms {
		t.Run(string(platform), func(t *testing.T) {
			t.Parallel()
			key := hostKey(t)
			got := render(t, userdata.Input{Platform: platform, PublicKey: publicKey, HostKey: key})
			got = strings.ReplaceAll(got, base64.StdEncoding.EncodeToString(key), "PRIVATE/KEY==")
			golden := goldenFile(platform)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the user data differs from %s; run with -update and check the difference", golden)
			}
		})
	}
}

// A test with PowerShell's own grammar reads the golden file.
func TestA88_TheCommandIsAPartOfTheScript(t *testing.T) {
	t.Parallel()
	command, err := userdata.JoinCommand(userdata.Join{Program: contract.Blob{Digest: strings.Repeat("a", 64), Size: 7},
		URL: "https://api.example.com:6443/x", Attendance: contract.Attendance{APIServer: "https://api.example.com:6443",
			CA: "CERTIFICATE", Payload: "/x", Namespace: "wmco", Token: "TOKEN"}})
	if err != nil {
		t.Fatal(err)
	}
	got, golden := render(t, userdata.Input{Platform: contract.PlatformAWS, Join: command}), "testdata/join.ps1"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || got != string(want) {
		t.Errorf("the user data differs from %s (%v); run with -update and check the difference", golden, err)
	}
}

// goldenFile returns the golden file of a platform. vSphere and Nutanix have the same user data as clusters without a
// cloud.
func goldenFile(platform contract.Platform) string {
	if platform == contract.PlatformVSphere || platform == contract.PlatformNutanix {
		platform = contract.PlatformNone
	}
	return filepath.Join("testdata", string(platform)+".ps1")
}

func TestAnUnknownPlatformIsGivenWhatNoneIs(t *testing.T) {
	t.Parallel()
	in := userdata.Input{Platform: "openstack", PublicKey: publicKey, HostKey: hostKey(t)}
	got := render(t, in)
	in.Platform = contract.PlatformNone
	if got != render(t, in) {
		t.Error("the user data differs")
	}
}

func TestTheScriptCarriesTheHostKeyWhereItIsCertainToRunAndNowhereElse(t *testing.T) {
	t.Parallel()
	key := hostKey(t)
	line, err := userdata.HostKeyLine(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range platforms {
		text := render(t, userdata.Input{Platform: platform, PublicKey: publicKey, HostKey: key})
		for _, part := range []string{line, base64.StdEncoding.EncodeToString(key), "ssh_host_ed25519_key"} {
			if strings.Contains(text, part) != userdata.CarriesHostKey(platform) {
				t.Errorf("%s: the script has %.20s…: %v", platform, part, !userdata.CarriesHostKey(platform))
			}
		}
		if bare := render(t, userdata.Input{Platform: platform, PublicKey: publicKey}); strings.Contains(bare,
			"ssh_host_") {
			t.Errorf("%s: without a shared host key, the script changes host keys", platform)
		}
	}
}

func TestKeysThatAreNotWhatTheyShouldBeAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]userdata.Input{
		"no public key":                         {},
		"a public key with a comment":           {PublicKey: publicKey + " root@localhost"},
		"a public key with options":             {PublicKey: `command="calc.exe" ` + publicKey},
		"two public keys":                       {PublicKey: publicKey + "\n" + publicKey},
		"code after the public key":             {PublicKey: publicKey + "'; Remove-Item C:\\ -Recurse; '"},
		"code instead of the key":               {PublicKey: "ssh-ed25519 '; exit; '"},
		"a host key that is no key":             {PublicKey: publicKey, HostKey: []byte("'; exit; '")},
		"a host key of another kind":            {PublicKey: publicKey, HostKey: ecdsaKey(t)},
		"text before the host key":              {PublicKey: publicKey, HostKey: append([]byte("x\n"), hostKey(t)...)},
		"a public key for a host key":           {PublicKey: publicKey, HostKey: []byte(publicKey)},
		"a script that is too long for a cloud": {PublicKey: hugeKey(t)},
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in.Platform = contract.PlatformAWS
			if text, err := userdata.Render(in); err == nil {
				t.Errorf("the user data was rendered:\n%s", text)
			}
		})
	}
}

// Users have scripts that expect the key on its own line.
func TestThePublicKeyStandsOnALineOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, platform := range platforms {
		text := render(t, userdata.Input{Platform: platform, PublicKey: publicKey, HostKey: hostKey(t)})
		if strings.Count(text, "\n"+publicKey+"\n") != 1 {
			t.Errorf("%s: the key has no line of its own", platform)
		}
	}
}

func TestALongKeyStillFits(t *testing.T) {
	t.Parallel()
	for _, platform := range platforms {
		text := render(t, userdata.Input{Platform: platform, PublicKey: rsaLine(t, 16384), HostKey: hostKey(t)})
		if len(text) > userdata.MaxSize {
			t.Errorf("%s: %d bytes", platform, len(text))
		}
	}
}

// No script may contain passwords, URLs with plain HTTP, requests to the metadata service, a transcript, or encoded
// commands.
func TestNoPasswordNoSecretNoMetadataServiceIsInAnyScript(t *testing.T) {
	t.Parallel()
	for _, platform := range platforms {
		text := strings.ToLower(render(t,
			userdata.Input{Platform: platform, PublicKey: publicKey, HostKey: hostKey(t)}))
		for _, banned := range []string{"asplaintext", "net user", "169.254.169.254", "http://", "/latest/",
			"start-transcript", "invoke-expression", "-encodedcommand"} {
			if strings.Contains(text, banned) {
				t.Errorf("%s: the script has %q", platform, banned)
			}
		}
	}
}

// FuzzRender uses arbitrary text as the public key. Render must refuse the text, or use only a key's type and base64
// from the text in the script.
func FuzzRender(f *testing.F) {
	for _, seed := range []string{publicKey, publicKey + "\r\n", " " + publicKey, publicKey + " '", "'; exit; '",
		"ssh-rsa AAAA", "ssh-ed25519 ''", "@cert-authority " + publicKey} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		text, err := userdata.Render(userdata.Input{Platform: contract.PlatformAWS, PublicKey: line})
		if err != nil {
			return
		}
		for _, complaint := range lint(unwrapped(text)) {
			t.Errorf("%q: %s", line, complaint)
		}
		_, rest, _ := strings.Cut(text, "\n$publicKey = '")
		key, _, _ := strings.Cut(rest, "'\n")
		if parsed, comment, _, _, err := ssh.ParseAuthorizedKey([]byte(key)); err != nil || comment != "" ||
			strings.TrimSpace(string(ssh.MarshalAuthorizedKey(parsed))) != key {
			t.Errorf("%q is in the script as %q", line, key)
		}
	})
}
