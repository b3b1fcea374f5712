package winos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"
)

// encodeEnvironment converts variables to the lines NAME=value of a REG_MULTI_SZ. The lines are sorted by
// name, so that equal variables have equal lines.
func encodeEnvironment(variables map[string]string) ([]string, error) {
	names := slices.SortedFunc(maps.Keys(variables), func(a, b string) int {
		return strings.Compare(strings.ToUpper(a), strings.ToUpper(b))
	})
	var lines []string
	for i, name := range names {
		if err := checkVariable(name, variables[name]); err != nil {
			return nil, err
		}
		if i > 0 && strings.EqualFold(name, names[i-1]) {
			return nil, fmt.Errorf("variable %q: %w: given twice", name, ErrInvalidName)
		}
		lines = append(lines, name+"="+variables[name])
	}
	return lines, nil
}

// decodeEnvironment is the inverse of encodeEnvironment. It skips invalid lines. If a variable occurs twice,
// the last value wins.
func decodeEnvironment(lines []string) map[string]string {
	variables := map[string]string{}
	for _, line := range lines {
		name, value, found := strings.Cut(line, "=")
		if !found || name == "" {
			continue
		}
		maps.DeleteFunc(variables, func(known, _ string) bool { return strings.EqualFold(known, name) })
		variables[name] = value
	}
	if len(variables) == 0 {
		return nil
	}
	return variables
}

// longestVariable is Windows' limit for one variable, in UTF-16 units.
const longestVariable = 32767

// checkVariable reports whether Windows can store an environment variable. The error omits the value, which
// may be secret.
func checkVariable(name, value string) error {
	switch {
	case name == "":
		return fmt.Errorf("variable without a name: %w", ErrInvalidName)
	case strings.ContainsAny(name, "=\x00"):
		return fmt.Errorf("variable %q: %w: it contains = or NUL", name, ErrInvalidName)
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("value of variable %q: %w: it contains NUL", name, ErrInvalidName)
	case units(name)+units(value)+2 > longestVariable:
		return fmt.Errorf("variable %q: %w: too long", name, ErrInvalidName)
	}
	return nil
}

// encodeStrings encodes a list of strings for Windows: each string ends with NUL, and the list with another
// NUL. An empty list is two NULs, which ChangeServiceConfig takes as "none". A null pointer would mean "don't
// change".
func encodeStrings(list []string) []uint16 {
	var block []uint16
	for _, s := range list {
		block = append(appendString(block, s), 0)
	}
	if len(list) == 0 {
		block = append(block, 0)
	}
	return append(block, 0)
}

func appendString(block []uint16, s string) []uint16 {
	for _, r := range s {
		block = utf16.AppendRune(block, r)
	}
	return block
}

// decodeStrings decodes such a list, up to the first empty string or the end of the block.
func decodeStrings(block []uint16) []string {
	var list []string
	for {
		end := slices.Index(block, 0)
		if end < 0 {
			end = len(block)
		}
		if end == 0 {
			return list
		}
		list = append(list, string(utf16.Decode(block[:end])))
		if end == len(block) {
			return list
		}
		block = block[end+1:]
	}
}
