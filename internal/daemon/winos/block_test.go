package winos

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestEnvironmentLinesAreSortedByName(t *testing.T) {
	t.Parallel()
	lines, err := encodeEnvironment(map[string]string{"b": "2", "A": "1=1", "C": "", "ä": "é"})
	if want := []string{"A=1=1", "b=2", "C=", "ä=é"}; err != nil || !slices.Equal(lines, want) {
		t.Errorf("got %q, %v; want %q", lines, err, want)
	}
	if lines, err := encodeEnvironment(nil); err != nil || lines != nil {
		t.Errorf("an empty block gives %q, %v", lines, err)
	}
}

func TestVariablesThatWindowsCannotKeepAreRefusedAndNotShown(t *testing.T) {
	t.Parallel()
	for name, variables := range map[string]map[string]string{
		"no name":            {"": "secret"},
		"an equals sign":     {"A=B": "secret"},
		"NUL in the name":    {"A\x00": "secret"},
		"NUL in the value":   {"A": "secret\x00"},
		"twice, in two ways": {"Path": "secret", "PATH": "secret"},
		"too long":           {"A": "secret" + strings.Repeat("x", 32767)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := encodeEnvironment(variables)
			if !errors.Is(err, ErrInvalidName) {
				t.Fatalf("got %v, want ErrInvalidName", err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error has the value: %q", err)
			}
		})
	}
}

func TestEnvironmentIsReadWithoutWhatIsNoVariable(t *testing.T) {
	t.Parallel()
	got := decodeEnvironment([]string{"A=1", "no variable", "=C:=C:\\", "B=x=y", "a=2", "E="})
	if want := map[string]string{"a": "2", "B": "x=y", "E": ""}; !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := decodeEnvironment(nil); got != nil {
		t.Errorf("an empty block gives %q", got)
	}
}
