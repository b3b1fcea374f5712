package kubectlwindows

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/inventory"
)

const redacted = "[redacted]"

// redactor takes out of text what looks like a secret, and the caller's own credentials.
type redactor struct {
	patterns []pattern
	own      *strings.Replacer
}

type pattern struct {
	match *regexp.Regexp
	with  []byte
}

const (
	beginsKey = `-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`
	endsKey   = `-----END [A-Z0-9 ]*PRIVATE KEY-----`
)

// newRedactor looks for private keys, passwords in URLs, tokens of service accounts, of kubeadm and of
// GitHub, headers, and assignments to names that say what they are.
func newRedactor(own ...string) redactor {
	var r redactor
	for _, p := range [][2]string{
		{`(?s)` + beginsKey + `.*?(?:` + endsKey + `|\z)`, redacted},
		{`LS0tLS1CRUdJTi[A-Za-z0-9+/=]*`, redacted}, // base64 of what begins like a key
		{`://[^\s"'<>]*@`, "://" + redacted + "@"},
		{`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`, redacted},
		{`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`, redacted},
		{`\b(?:gh[oprsu]|github_pat)_[A-Za-z0-9_]{20,}`, redacted},
		{`(?i)\b(bearer|basic)[ \t]+[A-Za-z0-9._~+/=-]{8,}`, "$1 " + redacted},
		{`(?i)((?:password|passwd|passphrase|pwd|secret|token|credentials?|\bauth|client-key-data|\bsig|` +
			`(?:api|access|account|private|secret|shared)[-_]?key)\\?["']?[ \t]*[:=][ \t]*)` +
			`(\\?"[^"\n]*"|'[^'\n]*'|[^\s,;"'{}\[\]]+)`, "${1}" + redacted},
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

// text is a text without secrets, and without what a terminal would obey.
func (r redactor) text(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte{0}, nil) // UTF-16, which Windows programs may write
	text = []byte(r.own.Replace(string(text)))
	text = fromKey(text)
	for _, p := range r.patterns {
		text = p.match.ReplaceAll(text, p.with)
	}
	return []byte(diagnosis.Visible(string(text)))
}

// fromKey cuts the part of a private key with which a text begins: the end of a log may begin in the
// middle of one.
func fromKey(text []byte) []byte {
	end := regexp.MustCompile(endsKey).FindIndex(text)
	begin := regexp.MustCompile(beginsKey).FindIndex(text)
	if end == nil || begin != nil && begin[0] < end[0] {
		return text
	}
	return slices.Concat([]byte(redacted), text[end[1]:])
}

// secretName is what has a value that is none of a reader's business.
var secretName = regexp.MustCompile(`(?i)pass|pwd|secret|token|key$|auth|cred`)

// wellKnown are annotations whose writers put no secrets into them.
var wellKnown = regexp.MustCompile(`^([a-z0-9-]+\.)*(kubernetes\.io|k8s\.io|openshift\.io|k8s\.ovn\.org|` +
	`coreos\.com|projectcalico\.org)/`)

// clean takes out of an object what nobody reads, and what may be secret by its place or looks like one.
func (r redactor) clean(object *unstructured.Unstructured) {
	if object.GetKind() == "ConfigMap" && object.GetName() == contract.InstancesConfigMap {
		cleanEntries(object)
	}
	cleanFields(object.Object)
	r.values(object.Object)
}

// values takes secrets out of texts before they are YAML, which may break a line between a name and what
// belongs to it.
func (r redactor) values(at any) any {
	switch at := at.(type) {
	case string:
		return string(r.text([]byte(at)))
	case map[string]any:
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

// cleanEntries keeps entries that are understood: into others a password may have been pasted.
func cleanEntries(list *unstructured.Unstructured) {
	data, _, err := unstructured.NestedStringMap(list.Object, "data")
	if err != nil {
		data = map[string]string{}
	}
	_, rejected := inventory.Parse(data)
	for _, r := range rejected {
		data[r.Key] = redacted
	}
	_ = unstructured.SetNestedStringMap(list.Object, data, "data")
}

// cleanFields cleans metadata, variables and arguments, wherever in an object they are.
func cleanFields(at any) {
	switch at := at.(type) {
	case map[string]any:
		delete(at, "managedFields")
		cleanMetadata(at)
		for _, list := range []string{"args", "command"} {
			if arguments, isList := at[list].([]any); isList {
				cleanArguments(arguments)
			}
		}
		cleanVariable(at)
		for _, inner := range at {
			cleanFields(inner)
		}
	case []any:
		for _, inner := range at {
			cleanFields(inner)
		}
	}
}

// cleanMetadata leaves labels, unless they are named like secrets, and annotations that are well known.
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

// cleanVariable leaves the values of variables for proxies only, whose passwords are in URLs.
func cleanVariable(at map[string]any) {
	name, isName := at["name"].(string)
	value, isVariable := at["value"].(string)
	if isName && isVariable && value != "" && !strings.HasSuffix(strings.ToUpper(name), "_PROXY") {
		at["value"] = redacted
	}
}

// cleanArguments replaces what follows a flag that is named like a secret.
func cleanArguments(arguments []any) {
	for i := 1; i < len(arguments); i++ {
		flag, _ := arguments[i-1].(string)
		if strings.HasPrefix(flag, "-") && !strings.Contains(flag, "=") && secretName.MatchString(flag) {
			arguments[i] = redacted
		}
	}
}
