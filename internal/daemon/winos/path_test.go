package winos

import (
	"errors"
	"strings"
	"testing"
)

func TestPathsThatWindowsAcceptsPass(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		`C:\`, `c:\k`, `C:\k\kubelet.exe`, `D:\a b\c`, `C:\.wmco\x`, `C:\Program Files (x86)\ü`, `C:\COM10\console`,
		`C:\a\nullable.txt`, `C:\a\com`,
		`C:\` + strings.Repeat("x", 255), `C:` + strings.Repeat(`\`+strings.Repeat("y", 254), 128),
	} {
		if err := CheckPath(path); err != nil {
			t.Error(err)
		}
	}
}

func TestPathsThatWindowsRefusesOrChangesAreInvalid(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"", "C:", `\k`, "k", `..\k`, `1:\k`, `C:k`, `C:/k`, `\\server\share`, `\\?\C:\k`, `C:\k\`, `C:\\k`, `C:\k\..\x`,
		`C:\.\k`, `C:\k.`, `C:\k `,
		`C:\k\a:b`, `C:\a*b`, `C:\a?`, `C:\a<b`, `C:\a>b`, `C:\a|b`, `C:\"a"`, "C:\\a\x00b", "C:\\a\nb", `C:\a/b`,
		"C:\\\xff",
		`C:\nul`, `C:\k\CON`, `C:\k\aux.txt`, `C:\k\Prn.tar.gz`, `C:\com1`, `C:\LPT9.log`, `C:\COM²`, `C:\conin$`,
		`C:\NUL .txt`, `C:\con\x`,
		`C:\` + strings.Repeat("x", 256), `C:\` + strings.Repeat("😀", 128),
	} {
		if err := CheckPath(path); !errors.Is(err, ErrInvalidName) {
			t.Errorf("CheckPath(%.40q) = %v; want ErrInvalidName", path, err)
		}
	}
}
