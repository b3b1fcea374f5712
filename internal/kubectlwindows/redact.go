package kubectlwindows

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/inventory"
)

const redacted = "[redacted]"

// redactor removes the caller's own credentials and everything that looks like a secret from a text.
type redactor struct {
	patterns []pattern
	own      *strings.Replacer
	// base64 matches text that may be base64. colours matches the control sequences for colors in a terminal.
	base64, colours *regexp.Regexp
	// `plain` converts URL-safe base64 to standard base64.
	plain *strings.Replacer
}

type pattern struct {
	match *regexp.Regexp
	with  []byte
}

const (
	beginsKey = `-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}`
	endsKey   = `-{4,5} ?END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}`

	// quote matches a quotation mark in JSON, in JSON that is nested at any depth in JSON, or in a URL. assigns matches
	// the characters between a name and its value.
	quote   = `(?:\\*["']|%22|\\+u0022)`
	assigns = quote + `?[ \t]*(?:=>|[:=]|%3[ad])[ \t]*`
	// value matches a value with or without quotation marks. The closing quotation mark may be missing, because the
	// text may be cut off. A value without quotation marks ends before a blank or a quotation mark, and doesn't include
	// punctuation at its end. It may contain commas and brackets, because passwords contain them.
	value = `(?:"(?:\\.|[^"\\\n])*(?:"|$)|'[^'\n]*(?:'|$)|%22.*?(?:%22|$)|\\+u0022.*?(?:\\+u0022|$)|` +
		`\\"(?:\\{2,}"|[^"\n])*?(?:[^\\"\n]\\"|$)|\\{2,}"[^"\n]*?(?:\\{2,}"|$)|` +
		`[^\s,;"'{}\[\]](?:[^\s"]*[^\s,;"'{}\[\]])?)`
	names = `(?:password|passwd|passphrase|pwd|(?:\b|_)pass|secret|token|credentials?|\bauth|client-key-data|\bsig|` +
		`docker(?:configjson|cfg)|(?:api|access|account|private|secret|shared)[-_]?key)`
)

// newRedactor returns a redactor. It removes private keys, passwords in URLs and before host names, tokens of many
// kinds, pull secrets, headers, values with names such as password, and the caller's credentials (`own`).
func newRedactor(own ...string) redactor {
	r := redactor{base64: regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}={0,2}`),
		colours: regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]`), plain: strings.NewReplacer("-", "+", "_", "/", "=", "")}
	for _, p := range [][2]string{
		{`(?s)` + beginsKey + `.*?(?:` + endsKey + `|\z)`, redacted},
		{`(?s).*` + endsKey, redacted}, // a log may begin in the middle of a private key
		{`(?s)PuTTY-User-Key-File-.*?(?:Private-MAC:[^\n]*|\z)`, redacted},
		{`LS0tLS1CRUdJTi[A-Za-z0-9+/=]*`, redacted}, // base64 of the beginning of a private key
		{`://[^\s"'<>]*@`, "://" + redacted + "@"},
		{`([A-Za-z0-9._%+$-]+):(?:[^\s"'<>/]|/[^\s"'<>/])[^\s"'<>]*@([A-Za-z0-9\[])`, "$1:" + redacted + "@$2"},
		{`\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){2,}`, redacted},
		{`\b(?:eyJ|eyA|eyI|ewo|ew0|ewk)[A-Za-z0-9+/_-]{20,}={0,2}`, redacted}, // base64 of JSON
		{`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`, redacted},
		{`\b(?:(?:gh[oprsu]|github_pat)_|glpat-)[A-Za-z0-9_-]{16,}`, redacted},
		{`\b(?:npm_|dckr_pat_|hvs\.|AIza|ya29\.)[A-Za-z0-9_.-]{16,}`, redacted},
		{`\bsha256~[A-Za-z0-9_-]{16,}`, redacted}, // a token of OpenShift's OAuth server
		{`\bxox[a-z]-[A-Za-z0-9-]{10,}`, redacted},
		{`(?im)(\b(?:authorization|cookie)` + assigns + `(?:\[|` + quote + `)?)[^\n"\]\\]+`, "${1}" + redacted},
		{`(?i)\b(bearer|basic)((?:[ \t:=]|%20)+)[A-Za-z0-9._~+/=:%-]{8,}`, "$1$2" + redacted},
		{`(?i)(ConvertTo-SecureString(?:[ \t]+-(?:String|AsPlainText|Force))*[ \t]+|` +
			`\bnet1?(?:\.exe)?[ \t]+user[ \t]+(?:"[^"\n]*"|[^\s"/]+)[ \t]+)("[^"\n]*"|'[^'\n]*'|[^\s"'/-][^\s"']*)`,
			"${1}" + redacted},
		{`(?i)(\bnet1?(?:\.exe)?[ \t]+use[ \t]+)[^\n]+`, "${1}" + redacted},
		{`(?i)([ \t]-u(?:ser)?[ \t]+[^\s:]+:|[ \t]--user[ \t=]+[^\s:]+:|\bsshpass[ \t]+-p[ \t]*|[ \t]-pw[ \t]+|` +
			`[ \t]/(?:password|passwd|pass|rp)[ \t]+)("[^"\n]*"|'[^'\n]*'|[^\s"']+)`, "${1}" + redacted},
		{`(?i)("(?:name|key)"\s*:\s*"[^"\n]*` + names + `[^"\n]*"\s*,\s*"value"\s*:\s*)"(?:\\.|[^"\\\n])*"`,
			"${1}" + redacted},
		{`(?im)(` + names + `[ \t]*:[ \t]*)[|>][-+0-9]*[ \t]*(?:\n[ \t]+[^\n]*)+`, "${1}" + redacted},
		{`(?im)(` + names + assigns + `(?:\[[ \t]*)?)` + value, "${1}" + redacted},
		{`(?i)(<[a-z]*(?:password|passphrase|secret|token)(?:\s[^<>]*)?>(?:\s*<value>)?)[^<]+`, "${1}" + redacted},
		{`(?im)((?:^|[\s"'])--?[a-z0-9-]*(?:password|passwd|passphrase|secret|token)[ \t]+)` +
			`("[^"\n]*"|'[^'\n]*'|[^\s"']+)`, "${1}" + redacted},
	} {
		r.patterns = append(r.patterns, pattern{regexp.MustCompile(p[0]), []byte(p[1])})
	}
	var pairs []string
	for _, secret := range own {
		if secret != "" {
			pairs = append(pairs, secret, redacted)
		}
	}
	r.own = strings.NewReplacer(pairs...)
	return r
}

// text removes secrets from a text, and replaces control characters.
func (r redactor) text(text []byte) []byte {
	return []byte(diagnosis.Visible(string(r.secrets(text, encodings))))
}

// secrets removes secrets from a text and from its base64. It decodes base64 up to `encoded` times.
func (r redactor) secrets(text []byte, encoded int) []byte {
	text = bytes.ReplaceAll(text, []byte{0}, nil) // UTF-16 text of Windows programs contains zero bytes
	text = r.colours.ReplaceAll(text, nil)        // some loggers set a color between a name and its value
	text = []byte(r.own.Replace(string(text)))
	if encoded > 0 {
		text = r.base64.ReplaceAllFunc(text, func(run []byte) []byte { return r.decoded(run, encoded-1) })
	}
	// Hide the digests of images. Otherwise, a pattern would treat a digest as a host after a password.
	text = bytes.ReplaceAll(text, []byte(atDigest), []byte{0})
	for _, p := range r.patterns {
		text = p.match.ReplaceAll(text, p.with)
	}
	return bytes.ReplaceAll(text, []byte{0}, []byte(atDigest))
}

// encodings is how many times base64 is decoded. A Secret's values are base64, and may themselves contain base64.
const encodings = 2

// `decoded` returns the base64 text `run` unchanged. If the text contains a secret, it returns `redacted` instead.
func (r redactor) decoded(run []byte, encoded int) []byte {
	letters := r.plain.Replace(string(run))
	if len(letters)%4 == 1 { // a log may end in the middle of the base64
		letters = letters[:len(letters)-1]
	}
	text, err := base64.RawStdEncoding.DecodeString(letters)
	text = bytes.ReplaceAll(text, []byte{0}, nil)
	if err != nil || !utf8.Valid(text) || bytes.Equal(r.secrets(text, encoded), text) {
		return run
	}
	return []byte(redacted)
}

const atDigest = "@sha256:"

// secretName matches names whose values may be secret.
var secretName = regexp.MustCompile(`(?i)pass|pwd|secret|token|key$|auth|cred`)

// wellKnown matches the names of annotations that never contain secrets.
var wellKnown = regexp.MustCompile(`^([a-z0-9-]+\.)*(kubernetes\.io|k8s\.io|openshift\.io|k8s\.ovn\.org|` +
	`coreos\.com|projectcalico\.org)/`)

// clean removes useless fields and possible secrets from an object. It finds secrets by their field or their content.
func (r redactor) clean(object *unstructured.Unstructured) {
	if object.GetKind() == "ConfigMap" && object.GetName() == contract.InstancesConfigMap {
		cleanEntries(object)
	}
	r.values(object.Object)
}

// values removes secrets from all strings in the value `at`, and from its annotations, labels, environment variables
// and arguments. This must happen before the conversion to YAML, because YAML may break the line between a name and its
// value.
func (r redactor) values(at any) any {
	switch at := at.(type) {
	case string:
		return string(r.text([]byte(at)))
	case map[string]any:
		delete(at, "managedFields")
		cleanMetadata(at)
		for _, list := range []string{"args", "command"} {
			if arguments, isList := at[list].([]any); isList {
				cleanArguments(arguments)
			}
		}
		cleanVariable(at)
		for name, inner := range at {
			at[name] = r.values(inner)
		}
	case []any:
		for i, inner := range at {
			at[i] = r.values(inner)
		}
	}
	return at
}

// cleanEntries keeps only the valid entries of windows-instances: a user may have pasted a password into an invalid
// entry.
func cleanEntries(list *unstructured.Unstructured) {
	typed := &corev1.ConfigMap{}
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(list.Object, typed) // drops invalid content
	values := inventory.Values(typed)
	_, rejected := inventory.Parse(typed)
	for _, r := range rejected {
		values[r.Key] = redacted
	}
	unstructured.RemoveNestedField(list.Object, "binaryData")
	_ = unstructured.SetNestedStringMap(list.Object, values, "data")
}

// cleanMetadata redacts the values of unknown annotations, and of labels whose names look like the name of a secret.
func cleanMetadata(at map[string]any) {
	for _, place := range []string{"annotations", "labels"} {
		values, _ := at[place].(map[string]any)
		delete(values, corev1.LastAppliedConfigAnnotation)
		for name := range values {
			known := place == "labels" || wellKnown.MatchString(name)
			if _, own := strings.CutPrefix(name, contract.Prefix); !own && (!known || secretName.MatchString(name)) {
				values[name] = redacted
			}
		}
	}
}

// cleanVariable redacts the value of an environment variable. Exception: it keeps the URL in a proxy variable. The
// patterns remove passwords from URLs.
func cleanVariable(at map[string]any) {
	name, isName := at["name"].(string)
	value, isVariable := at["value"].(string)
	if isName && isVariable && value != "" && !strings.HasSuffix(strings.ToUpper(name), "_PROXY") {
		at["value"] = redacted
	}
}

// cleanArguments redacts the argument after each flag whose name looks like the name of a secret.
func cleanArguments(arguments []any) {
	for i := 1; i < len(arguments); i++ {
		flag, _ := arguments[i-1].(string)
		if strings.HasPrefix(flag, "-") && !strings.Contains(flag, "=") && secretName.MatchString(flag) {
			arguments[i] = redacted
		}
	}
}
