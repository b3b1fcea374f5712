package blueprint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// fragment is the user's part of a KubeletConfiguration. The zero value changes nothing.
type fragment struct{ object map[string]any }

// maxFragment limits the size of a fragment. All fields that a user may set fit into 16 KiB.
const maxFragment = 64 << 10

// raw returns the normalised fragment, or nil if it changes nothing.
func (f fragment) raw() []byte {
	if len(f.object) == 0 {
		return nil
	}
	out, err := json.Marshal(f.object)
	if err != nil {
		return nil // can't happen: the object was decoded from JSON
	}
	return out
}

// The method over merges the fragment into a configuration's JSON: objects field by field, other values replaced.
func (f fragment) over(config string) (string, error) {
	if len(f.object) == 0 {
		return config, nil
	}
	var base map[string]any
	if err := json.Unmarshal([]byte(config), &base); err != nil {
		return "", err
	}
	out, err := json.MarshalIndent(merged(base, f.object), "", "  ")
	return string(out) + "\n", err
}

func merged(base, over map[string]any) map[string]any {
	all := maps.Clone(base)
	for key, value := range over {
		inner, isObject := value.(map[string]any)
		below, wasObject := all[key].(map[string]any)
		if isObject && wasObject {
			value = merged(below, inner)
		}
		all[key] = value
	}
	return all
}

// parseFragment parses a fragment strictly. If nodes would not work with the fragment merged into base, parseFragment
// refuses the whole fragment with a problem. The file kubelet is the program that will read the configuration.
func parseFragment(raw []byte, base string, kubelet payload.File) (fragment, *contract.Problem) {
	refuse := func(words ...string) (fragment, *contract.Problem) {
		return fragment{}, contract.NewProblem(contract.ReasonKubeletConfigRefused, "spec.kubelet.config: %s",
			strings.Join(words, "; "))
	}
	if len(raw) == 0 || string(raw) == "null" {
		return fragment{}, nil
	}
	if len(raw) > maxFragment {
		return refuse("it is larger than 64 KiB")
	}
	var typed kubeletconfigv1beta1.KubeletConfiguration
	strict, err := kjson.UnmarshalStrict(raw, &typed)
	if err != nil {
		var value any
		_ = json.Unmarshal(raw, &value) // value stays nil if raw isn't JSON
		return refuse(cmp.Or(strings.Join(typeFlaws("", value, reflect.TypeOf(typed)), "; "), shortened(err)))
	}
	if len(strict) > 0 {
		return refuse(shortened(strict...))
	}
	var f fragment
	if err = json.Unmarshal(raw, &f.object); err != nil {
		return refuse(shortened(err))
	}
	words := append(kindFlaws(f.object), fieldFlaws(f.object)...)
	delete(f.object, "apiVersion")
	delete(f.object, "kind")
	words = append(words, gateFlaws(typed.FeatureGates, kubelet)...)
	if len(words) > 0 {
		return refuse(words...)
	}
	text, err := f.over(base)
	if err != nil {
		return refuse("it can't be merged")
	}
	var whole kubeletconfigv1beta1.KubeletConfiguration
	if err = json.Unmarshal([]byte(text), &whole); err != nil {
		return refuse("it can't be merged")
	}
	if words = append(valueFlaws(whole), gatedFlaws(whole, kubelet)...); len(words) > 0 {
		return refuse(words...)
	}
	return f, nil
}

// typeFlaws describes the values that have the wrong type, with the type that kubelet expects.
func typeFlaws(path string, value any, wanted reflect.Type) (words []string) {
	text, _ := json.Marshal(value) // can't fail: the value was decoded from JSON
	if json.Unmarshal(text, reflect.New(wanted).Interface()) == nil {
		return nil
	}
	object, _ := value.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if inner := typeOf(wanted, key); inner != nil {
			words = append(words, typeFlaws(strings.TrimPrefix(path+"."+key, "."), object[key], inner)...)
		}
	}
	if len(words) > 0 {
		return words
	}
	expected := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.String: "text in quotes",
		reflect.Slice: "a list of text in quotes", reflect.Map: "an object", reflect.Struct: "an object"}[wanted.Kind()]
	if wanted == reflect.TypeFor[metav1.Duration]() {
		expected = `a duration such as "30s"`
	}
	return []string{fmt.Sprintf("%s is %.80s, not %s", cmp.Or(path, "it"), text,
		cmp.Or(expected, "a whole number below 2^31"))}
}

func typeOf(object reflect.Type, key string) reflect.Type {
	if object.Kind() == reflect.Map {
		return object.Elem()
	}
	for _, f := range reflect.VisibleFields(object) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == key && f.Type.Kind() == reflect.Pointer {
			return f.Type.Elem()
		} else if name == key {
			return f.Type
		}
	}
	return nil
}

// shortened joins the errors of a JSON parser, and shortens the text, because the errors may repeat the input.
func shortened(errs ...error) string {
	text := strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; ")
	if len(text) > 5*shown {
		text = text[:5*shown] + "…"
	}
	return strings.ToValidUTF8(text, "?")
}

func kindFlaws(object map[string]any) (words []string) {
	for field, want := range map[string]string{"apiVersion": kubeletconfigv1beta1.SchemeGroupVersion.String(),
		"kind": "KubeletConfiguration"} {
		if got, ok := object[field]; ok && got != want {
			words = append(words, field+" is not "+want)
		}
	}
	slices.Sort(words)
	return words
}

// fieldFlaws describes the fields that users may not set, and the fields that contain null, because null has no effect.
func fieldFlaws(object map[string]any) (words []string) {
	rules := kubeletFields()
	for _, field := range slices.Sorted(maps.Keys(object)) {
		if why := rules[field]; why != "" {
			words = append(words, field+" "+why)
		}
		if hasNull(object[field]) {
			words = append(words, field+" has a null, which means nothing; leave it out")
		}
	}
	return words
}

func hasNull(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, inner := range v {
			if hasNull(inner) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasNull)
	}
	return false
}
