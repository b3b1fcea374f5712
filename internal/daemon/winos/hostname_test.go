package winos

import (
	"errors"
	"strings"
	"testing"
)

func TestHostNamesAreThoseThatDNSAndWindowsTake(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "winworker-x7k2p", "WIN-0ABC", "1a", strings.Repeat("a", 63)} {
		if err := checkHostname(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "-a", "a-", "123", "a.b", "a_b", "a b", "ü", "a\x00", strings.Repeat("a", 64)} {
		if err := checkHostname(name); !errors.Is(err, ErrInvalidName) {
			t.Errorf("checkHostname(%q) = %v; want ErrInvalidName", name, err)
		}
	}
}
