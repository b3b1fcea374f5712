package winos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"
)

// encodeEnvironment converts variables to the lines NAME=value of a REG_MULTI_SZ. The lines are sorted by name, so that
// the same variables always give the same lines.
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

// decodeEnvironment inverts encodeEnvironment. It skips invalid lines. The last value of a repeated variable wins.
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

// checkVariable returns an error if Windows can't store a variable. The error omits the value, which may be secret.
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

// units returns the length of a text in UTF-16 units. Windows measures names in these units.
func units(text string) int { return len(utf16.Encode([]rune(text))) }
