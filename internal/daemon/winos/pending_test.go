package winos

import (
	"slices"
	"testing"
)

func TestOnlyWhatIsPutInPlaceAtBootIsASign(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ list, want []string }{
		"nothing":                 {nil, nil},
		"a deletion":              {[]string{`\??\C:\k\kubelet.exe.old-1`, ""}, nil},
		"a file":                  {[]string{`\??\C:\a.tmp`, `\??\C:\a.dll`}, []string{`C:\a.dll`}},
		"a file that may exist":   {[]string{`\??\C:\a.tmp`, `!\??\C:\a.dll`}, []string{`C:\a.dll`}},
		"both":                    {[]string{`\??\C:\x`, "", `\??\C:\a.tmp`, `!\??\C:\a.dll`}, []string{`C:\a.dll`}},
		"a list that was cut off": {[]string{`\??\C:\x`, "", `\??\C:\a.tmp`}, nil},
	} {
		if got := replacedAtBoot(c.list); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
