package userdata

import (
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
)

func TestA85_TheCommandIsQuotedAndVerifiesAnAddress(t *testing.T) {
	t.Parallel()
	command := func(server, ca string) string {
		t.Helper()
		text, err := JoinCommand(Join{Program: contract.Blob{Digest: strings.Repeat("a", 64), Size: 7},
			URL:        server + "/api/v1/x",
			Attendance: contract.Attendance{APIServer: server, CA: ca, Token: "token-1"}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := command("https://10.0.0.1:6443", "O'Neill\u2019s \U0001F600CA")
	for _, part := range []string{"O''Neills CA",
		"--connect-to 'kubernetes.default.svc:6443:10.0.0.1:6443'", "--url 'https://kubernetes.default.svc:6443/api/v1/x'"} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is missing in\n%s", part, text)
		}
	}
	if text = command("https://api.example.com:6443", "x"); strings.Contains(text, "--connect-to") ||
		!strings.Contains(text, "--url 'https://api.example.com:6443/api/v1/x'") {
		t.Error(text)
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "curl.exe") && strings.Contains(line, "token-1") {
			t.Errorf("the command line of curl has the token: %s", line)
		}
	}
	if _, err := JoinCommand(Join{URL: "https://x/'; Remove-Item C:\\"}); err == nil {
		t.Error("a URL with a quote is accepted")
	}
}

// Without an SSH key, the user data contains a join command, and nothing that lets a user log in.
func TestA88_UserDataWithoutAKeyJoinsAndOpensNoDoor(t *testing.T) {
	t.Parallel()
	for _, platform := range []contract.Platform{contract.PlatformAWS, contract.PlatformAzure, contract.PlatformGCP,
		contract.PlatformNutanix} {
		text, err := Render(Input{Platform: platform, Join: "& {\n$join = 1\n}\n", PublicKey: "ignored"})
		if err != nil {
			t.Fatal(err)
		}
		for part, want := range map[string]bool{"$join = 1": true, "Invoke-Step 'join'": true, "10250": true,
			"add-routes": platform == contract.PlatformAWS, "sshd": false, "ssh-": false, "publicKey": false,
			"Enable-LocalUser": false, "OpenSSH": false} {
			if strings.Contains(text, part) != want {
				t.Errorf("%s: contains %q: %t\n%s", platform, part, !want, text)
			}
		}
		if strings.Count(text, "{") != strings.Count(text, "}") {
			t.Errorf("%s: the braces don't match:\n%s", platform, text)
		}
	}
	if _, err := Render(Input{Join: strings.Repeat("x", MaxSize)}); err == nil {
		t.Error("user data that is too long for any cloud is accepted")
	}
}
