package kubectlwindows

import (
	"encoding/base64"
	"strings"
	"testing"
)

// Whatever is around it, the word uploaded is part of a secret, and the word kept of none.
func TestSecretsInAnyShapeAreRedacted(t *testing.T) {
	t.Parallel()
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	config := encoded(`{"auths":{"quay.io":{"auth":"cGxhbnRlZDpwbGFudGVk"}}}`)
	for name, test := range map[string]struct {
		text string
		// also is another text that must be gone.
		also string
	}{
		"JSON":                             {`{"token":"uploaded","kept":"kept"}`, ""},
		"JSON with a quote in it":          {`{"password":"a\"uploaded","kept":"kept"}`, ""},
		"JSON that is cut off":             {"kept {\"password\":\"uploaded with blanks", ""},
		"JSON in JSON":                     {`{"msg":"{\"token\":\"uploaded and uploaded\",\"x\":\"kept\"}"}`, ""},
		"JSON in JSON in JSON":             {`"{\"m\":\"{\\\"token\\\":\\\"uploaded x\\\",\\\"y\\\":\\\"kept\\\"}\"}"`, ""},
		"a quote in JSON in JSON":          {`{"msg":"{\"token\":\"a\\\"uploaded\",\"x\":\"kept\"}"}`, ""},
		"quotes as code points":            {`{\u0022token\u0022:\u0022uploaded\u0022} kept`, ""},
		"a URL's parameters":               {`GET /x?y=kept&access%5Ftoken=uploaded&z=1`, ""},
		"escaped parameters":               {`%22token%22%3A%22uploaded%22 kept`, ""},
		"a user without a scheme":          {`kept proxy admin:uploaded@proxy.corp:3128`, ""},
		"a domain's user":                  {`kept CORP\admin:uploaded@10.0.0.1`, ""},
		"an at in a password":              {`kept admin:plan@uploaded@proxy.corp`, "plan@"},
		"a user in quotes":                 {`proxy="admin:uploaded@proxy.corp:3128" kept`, ""},
		"a user beside an image":           {`x@sha256:kept admin:uploaded@proxy`, ""},
		"a pull secret":                    {`{"auths":{"quay.io":{"auth":"uploaded","email":"kept"}}}`, ""},
		"a pull secret in JSON":            {`"{\"auths\":{\"quay.io\":{\"auth\":\"uploaded\"}}} kept"`, ""},
		"a pull secret in base64":          {"kept is " + config, config[20:60]},
		"a pull secret by its name":        {".dockerconfigjson: uploaded\nkept", ""},
		"an older pull secret by its name": {`kept ".dockercfg":"uploaded"`, ""},
		"a token of a registry":            {`kept {"identitytoken":"uploaded","registrytoken":"uploaded"}`, ""},
		"a key in JSON":                    {`{"k":"-----BEGIN RSA PRIVATE KEY-----\nuploaded\nuploaded\n-----END RSA PRIVATE KEY-----\n","x":"kept"}`, ""},
		"a key in JSON in JSON":            {`"{\"k\":\"-----BEGIN PRIVATE KEY-----\\nuploaded\\n-----END PRIVATE KEY-----\\n\"}" kept`, ""},
		"the end of a key in JSON":         {`uploaded\nuploaded\n-----END RSA PRIVATE KEY-----\n","x":"kept"}`, ""},
		"the end of a second key": {"-----BEGIN PRIVATE KEY-----\nuploaded\n-----END PRIVATE KEY-----\n" +
			"uploaded\n-----END PRIVATE KEY-----\nkept", ""},
		"a key of PGP":                 {"-----BEGIN PGP PRIVATE KEY BLOCK-----\nuploaded\n-----END PGP PRIVATE KEY BLOCK-----\nkept", ""},
		"a key of PuTTY":               {"kept\nPuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\nuploaded\nPrivate-MAC: uploaded\n", ""},
		"a bearer token":               {`kept Authorization: Bearer plan:ted-uploaded`, ""},
		"a bearer token in JSON":       {`{"authorization":"Bearer uploaded.uploaded","x":"kept"}`, ""},
		"a bearer token with a colon":  {`kept bearer: uploaded-uploaded`, ""},
		"a bearer token that is coded": {`kept Bearer%20uploaded-uploaded`, ""},
		"a header of another kind":     {"Authorization: Negotiate uploaded uploaded\nkept", ""},
		"headers as Go prints them":    {`map[Authorization:[Token uploaded] X-Kept:[kept]]`, ""},
		"a cookie":                     {"Set-Cookie: session=uploaded; Path=/\nkept", ""},
		"a token of OpenShift":         {"kept sha256~uploadeduploadeduploadeduploaded", ""},
		"a token of GitLab":            {"kept glpat-uploadeduploadeduploaded", ""},
		"a token of Slack":             {"kept xoxb-1234567890-uploaded", ""},
		"an encrypted JWT":             {"kept eyJhbGciOiJSU0EifQ.uploaded-a.uploaded-b.uploaded-c.uploaded-d", ""},
		"a JWT without a signature":    {"kept eyJhbGciOiJub25lIn0.uploadeduploaded.", ""},
		"a block of YAML":              {"password: |\n  uploaded\n  uploaded\nkept: kept", ""},
		"XML":                          {"<AdministratorPassword>uploaded</AdministratorPassword><x>kept</x>", ""},
		"a secure string":              {`kept ConvertTo-SecureString "uploaded uploaded" -AsPlainText`, ""},
		"a secure string after flags":  {`kept -Password (ConvertTo-SecureString -AsPlainText -Force "uploaded") -Force`, ""},
		"net use":                      {"kept net use Z: \\\\srv\\share /user:CORP\\admin uploaded\nkept", ""},
		"a user of curl":               {`kept curl -u admin:uploaded https://x`, ""},
		"a password of PuTTY's plink":  {`kept plink -pw uploaded host`, ""},
		"a flag of Windows":            {`kept schtasks /create /ru x /rp uploaded`, ""},
		"a credential manager's":       {`kept cmdkey /add:host /user:admin /pass:uploaded`, ""},
		"a list of passwords":          {`kept "passwords":1,"password":["uploaded"]`, ""},
		"punctuation in a password":    {`password=a,uploaded;uploaded{uploaded'uploaded kept`, ""},
		"an arrow":                     {`password => uploaded kept`, ""},
		"colours around the name":      {"\x1b[36mpassword\x1b[0m=uploaded kept", ""},
		"colours before the value":     {"password=\x1b[31muploaded\x1b[0m kept", ""},
		"a name and a value":           {`{"name":"DB_PASSWORD","value":"uploaded, uploaded"} kept`, ""},
		"an answer file":               {"<Password>\n<Value>uploaded</Value></Password> kept", ""},
		"a key of another vendor":      {"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nuploaded\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\nkept", ""},
		"a token of npm":               {"kept npm_uploadeduploadeduploadeduploaded", ""},
		"an assignment in base64":      {"kept " + encoded("password=uploaded-uploaded"), encoded("password=uploaded-uploaded")},
		"a kubeconfig in base64":       {"kept " + encoded("users:\n- user:\n    token: uploaded"), encoded("users:\n- user:\n    token: uploaded")},
		"a key in base64 in base64":    {"kept " + encoded(encoded("-----BEGIN RSA PRIVATE KEY-----\nuploaded")), "TFMwdExT"},
		"a script for PowerShell":      {"kept -enc " + encoded("$\x00p\x00w\x00d\x00 \x00=\x00 \x00p\x00l\x00a\x00n\x00t\x00e\x00d\x00"), "JABwAHcAZAA"},
		"net user":                     {`kept net user Administrator uploaded /add`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := string(newRedactor().text([]byte(test.text)))
			if strings.Contains(got, "uploaded") || test.also != "" && strings.Contains(got, test.also) ||
				!strings.Contains(got, "kept") || !strings.Contains(got, redacted) {
				t.Errorf("it becomes %s", got)
			}
		})
	}
}

// What a reader needs to find a fault stays.
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
