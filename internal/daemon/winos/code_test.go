package winos

import (
	"io/fs"
	"testing"
)

func TestCodesOfWindowsMeanWhatCallersTestFor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code uint32
		want error
	}{
		"success is no error":                     {0, nil},
		"a file that is absent":                   {2, fs.ErrNotExist},
		"a drive that is absent":                  {3, fs.ErrNotExist},
		"a file that is open":                     {32, ErrInUse},
		"a file that is mapped":                   {1224, ErrInUse},
		"a file that is being deleted":            {303, ErrInUse},
		"a name that is not legal":                {123, ErrInvalidName},
		"a name that is too long":                 {206, ErrInvalidName},
		"a full disk":                             {112, ErrNoSpace},
		"a full disk, of a handle":                {39, ErrNoSpace},
		"a quota":                                 {1295, ErrNoSpace},
		"no right":                                {5, ErrDenied},
		"no privilege":                            {1314, ErrDenied},
		"a service that is absent":                {1060, ErrNotFound},
		"a service that is marked for deletion":   {1072, ErrInUse},
		"a service that did not answer":           {1053, ErrStartFailed},
		"a dependency that did not start":         {1068, ErrStartFailed},
		"an invalid exe":                          {193, ErrStartFailed},
		"a DLL that is absent":                    {126, ErrUnsupported},
		"a function that is absent":               {127, ErrUnsupported},
		"a service of RPC that does not run":      {1722, ErrUnsupported},
		"an HRESULT around a Win32 code":          {0x80070020, ErrInUse},
		"an HRESULT around access denied":         {0x80070005, ErrDenied},
		"a feature that is absent":                {0x800f080c, ErrNotFound},
		"an unknown code":                         {1784, nil},
		"an HRESULT of another facility with a 2": {0x80040002, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := meaning(test.code); got != test.want { //nolint:errorlint // these errors are not wrapped
				t.Errorf("meaning(%#x) = %v, want %v", test.code, got, test.want)
			}
		})
	}
}
