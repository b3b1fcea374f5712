package kubectlwindows

import (
	"encoding/base64"
	"strings"
	"testing"
)

// In each text, the word planted is a part of a secret, so it must be removed. The word kept must remain.
func TestSecretsInAnyShapeAreRedacted(t *testing.T) {
	t.Parallel()
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	config := encoded(`{"auths":{"quay.io":{"auth":"cGxhbnRlZDpwbGFudGVk"}}}`)
	for name, test := range map[string]struct {
		text string
		// also is a text that must be removed as well.
		also string
	}{
		"JSON":                             {`{"token":"planted","kept":"kept"}`, ""},
		"JSON with a quote in it":          {`{"password":"a\"planted","kept":"kept"}`, ""},
		"JSON that is cut off":             {"kept {\"password\":\"planted with blanks", ""},
		"JSON in JSON":                     {`{"msg":"{\"token\":\"planted and planted\",\"x\":\"kept\"}"}`, ""},
		"JSON in JSON in JSON":             {`"{\"m\":\"{\\\"token\\\":\\\"planted x\\\",\\\"y\\\":\\\"kept\\\"}\"}"`, ""},
		"a quote in JSON in JSON":          {`{"msg":"{\"token\":\"a\\\"planted\",\"x\":\"kept\"}"}`, ""},
		"quotes as code points":            {`{\u0022token\u0022:\u0022planted\u0022} kept`, ""},
		"a URL's parameters":               {`GET /x?y=kept&access%5Ftoken=planted&z=1`, ""},
		"escaped parameters":               {`%22token%22%3A%22planted%22 kept`, ""},
		"a user without a scheme":          {`kept proxy admin:planted@proxy.corp:3128`, ""},
		"a domain's user":                  {`kept CORP\admin:planted@10.0.0.1`, ""},
		"an at in a password":              {`kept admin:plan@planted@proxy.corp`, "plan@"},
		"a user in quotes":                 {`proxy="admin:planted@proxy.corp:3128" kept`, ""},
		"a user beside an image":           {`x@sha256:kept admin:planted@proxy`, ""},
		"a pull secret":                    {`{"auths":{"quay.io":{"auth":"planted","email":"kept"}}}`, ""},
		"a pull secret in JSON":            {`"{\"auths\":{\"quay.io\":{\"auth\":\"planted\"}}} kept"`, ""},
		"a pull secret in base64":          {"kept is " + config, config[20:60]},
		"a pull secret by its name":        {".dockerconfigjson: planted\nkept", ""},
		"an older pull secret by its name": {`kept ".dockercfg":"planted"`, ""},
		"a token of a registry":            {`kept {"identitytoken":"planted","registrytoken":"planted"}`, ""},
		"a key in JSON":                    {`{"k":"-----BEGIN RSA PRIVATE KEY-----\nplanted\nplanted\n-----END RSA PRIVATE KEY-----\n","x":"kept"}`, ""},
		"a key in JSON in JSON":            {`"{\"k\":\"-----BEGIN PRIVATE KEY-----\\nplanted\\n-----END PRIVATE KEY-----\\n\"}" kept`, ""},
		"the end of a key in JSON":         {`planted\nplanted\n-----END RSA PRIVATE KEY-----\n","x":"kept"}`, ""},
		"the end of a second key": {"-----BEGIN PRIVATE KEY-----\nplanted\n-----END PRIVATE KEY-----\n" +
			"planted\n-----END PRIVATE KEY-----\nkept", ""},
		"a key of PGP":                 {"-----BEGIN PGP PRIVATE KEY BLOCK-----\nplanted\n-----END PGP PRIVATE KEY BLOCK-----\nkept", ""},
		"a key of PuTTY":               {"kept\nPuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\nplanted\nPrivate-MAC: planted\n", ""},
		"a bearer token":               {`kept Authorization: Bearer plan:ted-planted`, ""},
		"a bearer token in JSON":       {`{"authorization":"Bearer planted.planted","x":"kept"}`, ""},
		"a bearer token with a colon":  {`kept bearer: planted-planted`, ""},
		"a bearer token that is coded": {`kept Bearer%20planted-planted`, ""},
		"a header of another kind":     {"Authorization: Negotiate planted planted\nkept", ""},
		"headers as Go prints them":    {`map[Authorization:[Token planted] X-Kept:[kept]]`, ""},
		"a cookie":                     {"Set-Cookie: session=planted; Path=/\nkept", ""},
		"a token of OpenShift":         {"kept sha256~plantedplantedplantedplanted", ""},
		"a token of GitLab":            {"kept glpat-plantedplantedplanted", ""},
		"a token of Slack":             {"kept xoxb-1234567890-planted", ""},
		"an encrypted JWT":             {"kept eyJhbGciOiJSU0EifQ.planted-a.planted-b.planted-c.planted-d", ""},
		"a JWT without a signature":    {"kept eyJhbGciOiJub25lIn0.plantedplanted.", ""},
		"a block of YAML":              {"password: |\n  planted\n  planted\nkept: kept", ""},
		"XML":                          {"<AdministratorPassword>planted</AdministratorPassword><x>kept</x>", ""},
		"a secure string":              {`kept ConvertTo-SecureString "planted planted" -AsPlainText`, ""},
		"a secure string after flags":  {`kept -Password (ConvertTo-SecureString -AsPlainText -Force "planted") -Force`, ""},
		"net use":                      {"kept net use Z: \\\\srv\\share /user:CORP\\admin planted\nkept", ""},
		"a user of curl":               {`kept curl -u admin:planted https://x`, ""},
		"a password of PuTTY's plink":  {`kept plink -pw planted host`, ""},
		"a flag of Windows":            {`kept schtasks /create /ru x /rp planted`, ""},
		"a credential manager's":       {`kept cmdkey /add:host /user:admin /pass:planted`, ""},
		"a list of passwords":          {`kept "passwords":1,"password":["planted"]`, ""},
		"punctuation in a password":    {`password=a,planted;planted{planted'planted kept`, ""},
		"an arrow":                     {`password => planted kept`, ""},
		"colours around the name":      {"\x1b[36mpassword\x1b[0m=planted kept", ""},
		"colours before the value":     {"password=\x1b[31mplanted\x1b[0m kept", ""},
		"a name and a value":           {`{"name":"DB_PASSWORD","value":"planted, planted"} kept`, ""},
		"an answer file":               {"<Password>\n<Value>planted</Value></Password> kept", ""},
		"a key of another vendor":      {"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nplanted\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\nkept", ""},
		"a token of npm":               {"kept npm_plantedplantedplantedplanted", ""},
		"an assignment in base64":      {"kept " + encoded("password=planted-planted"), encoded("password=planted-planted")},
		"a kubeconfig in base64":       {"kept " + encoded("users:\n- user:\n    token: planted"), encoded("users:\n- user:\n    token: planted")},
		"a key in base64 in base64":    {"kept " + encoded(encoded("-----BEGIN RSA PRIVATE KEY-----\nplanted")), "TFMwdExT"},
		"a token in base64 in base64":  {"kept " + encoded(encoded("token: planted-planted")), encoded(encoded("token: planted-planted"))},
		"a script for PowerShell":      {"kept -enc " + encoded("$\x00p\x00w\x00d\x00 \x00=\x00 \x00p\x00l\x00a\x00n\x00t\x00e\x00d\x00"), "JABwAHcAZAA"},
		"net user":                     {`kept net user Administrator planted /add`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := string(newRedactor().text([]byte(test.text)))
			if strings.Contains(got, "planted") || test.also != "" && strings.Contains(got, test.also) ||
				!strings.Contains(got, "kept") || !strings.Contains(got, redacted) {
				t.Errorf("the text becomes %s", got)
			}
		})
	}
}

// Text that helps to find the cause of a problem must remain.
func TestWhatIsNoSecretIsNotRedacted(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"quay.io/org/image:v1.2@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"pulling reg.corp:5000/a:tag@sha256:01 and reg.corp:5000/b:tag@sha256:02",
		`C:\k\kubelet.exe exited: 12:30:01.123456 node win-1.example.com`,
		"user admin@corp.example.com from 10.0.0.1:22 at 10:30",
		"secretName: pull-secret-of-the-namespace", "tokenExpirationSeconds: 3600",
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
		`no basic auth, bearer of news; the pod has no token`,
		"http://[redacted]@proxy.example.com:3128",
		"eyJ is how JSON begins in base64",
	} {
		if got := string(newRedactor().text([]byte(text))); got != text {
			t.Errorf("%s becomes %s", text, got)
		}
	}
}
