package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Merge checks the entries of users, and merges all entries with the same source and the same kind of pull into one
// rule, as documented for ImageDigestMirrorSet and as on Linux nodes:
//   - each entry's mirrors keep their order; if the orders of several entries contradict each other, Merge still always
//     returns the same order;
//   - if one entry forbids contact with the source, the source is not contacted, for either kind of pull;
//   - an entry is ignored, including its policy, if it has no mirror or if its only mirror is the source itself.
//
// Merge returns the rules, and a problem for each rejected part of an entry. Both are sorted, so the order of the sets
// does not matter.
func Merge(sets []Set) ([]contract.MirrorRule, []*contract.Problem) {
	var problems []*contract.Problem
	lists := map[key][][]string{}
	never := map[string]bool{}
	for _, set := range sets {
		rule, complaints := check(set)
		problems = append(problems, complaints...)
		if rule == nil {
			continue
		}
		never[rule.Source] = never[rule.Source] || rule.NeverContactSource
		k := key{rule.Source, rule.Kind}
		lists[k] = append(lists[k], rule.Mirrors)
	}
	rules := make([]contract.MirrorRule, 0, len(lists))
	for k, all := range lists {
		rules = append(rules, contract.MirrorRule{Source: k.source, Kind: k.kind, Mirrors: join(k.source, all),
			NeverContactSource: never[k.source]})
	}
	slices.SortFunc(rules, func(a, b contract.MirrorRule) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Kind, b.Kind))
	})
	slices.SortFunc(problems, func(a, b *contract.Problem) int { return cmp.Compare(a.Detail, b.Detail) })
	return rules, slices.CompactFunc(problems, func(a, b *contract.Problem) bool { return *a == *b })
}

type key struct {
	source string
	kind   contract.PullKind
}

// join returns the mirrors of all entries for one source, in order. The result contains the source itself only if an
// entry lists it before a mirror, so that the source is tried before this mirror. Otherwise the source is tried last.
func join(source string, lists [][]string) []string {
	if slices.ContainsFunc(lists, func(list []string) bool { return slices.Contains(list, source) }) {
		for i, list := range lists {
			if !slices.Contains(list, source) {
				lists[i] = append(slices.Clip(list), source)
			}
		}
	}
	mirrors := order(lists)
	if last := len(mirrors) - 1; last >= 0 && mirrors[last] == source {
		mirrors = mirrors[:last]
	}
	return mirrors
}

// check returns a set's rule without the invalid parts, and a problem for each invalid part. If the set has no effect,
// the rule is nil.
func check(set Set) (*contract.MirrorRule, []*contract.Problem) {
	var complaints []*contract.Problem
	complain := func(mirror, format string, args ...any) {
		complaints = append(complaints, rejected(set.Object, set.Source, mirror, fmt.Sprintf(format, args...)))
	}
	source, err := parseSource(set.Source)
	if err != nil {
		complain("", "%s", err)
		return nil, complaints
	}
	rule := &contract.MirrorRule{Source: source.String(), Kind: set.Kind,
		NeverContactSource: set.Policy == NeverContactSource}
	if set.Policy != "" && set.Policy != AllowContactingSource && set.Policy != NeverContactSource {
		rule.NeverContactSource = true
		complain("", "mirrorSourcePolicy %s is unknown; it counts as %s", quote(string(set.Policy)), NeverContactSource)
	}
	effect := false
	for _, text := range set.Mirrors {
		mirror, err := parseMirror(text)
		if err != nil {
			complain(text, "%s", err)
		} else if name := mirror.String(); !slices.Contains(rule.Mirrors, name) {
			rule.Mirrors = append(rule.Mirrors, name)
		}
		effect = effect || err != nil || mirror != source
	}
	if effect {
		return rule, complaints
	}
	switch {
	case len(set.Mirrors) > 0:
		complain("", "its only mirror is the source itself, so the entry has no effect")
	case rule.NeverContactSource:
		complain("", "%s has no effect without mirrors", NeverContactSource)
	}
	return nil, complaints
}

// parseMirror parses the location of a mirror. It refuses the address of the node's own resolver.
func parseMirror(text string) (Location, error) {
	mirror, err := parseLocation(text)
	if err != nil {
		if strings.HasPrefix(text, "*.") {
			err = errors.New("only a source can be a wildcard")
		}
		return Location{}, err
	}
	if _, port := mirror.split(); port == strconv.Itoa(contract.MirrorPort) && mirror.IsLoopback() {
		return Location{}, errors.New("at this address a Windows node has its own resolver, which would ask itself")
	}
	return mirror, nil
}
