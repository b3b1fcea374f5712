package contract

import (
	"slices"
	"strings"
	"testing"
)

func TestManifestViolations(t *testing.T) {
	t.Parallel()
	if err := sample().Validate(); err != nil {
		t.Fatalf("the sample must be valid: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*Manifest)
		want   string
	}{
		"a service without a name":    {func(m *Manifest) { m.Services[3].Name = "" }, "a name has letters"},
		"a service name with a slash": {func(m *Manifest) { m.Services[3].Name = `a\b` }, "a name has letters"},
		"the daemon's own service":    {func(m *Manifest) { m.Services[3].Name = ServiceDaemon }, "own service"},
		"the daemon's program with services": {func(m *Manifest) {
			m.Files[0].Path, m.Files[0].Services = PathDaemon,
				[]string{"kubelet"}
		}, "the daemon's own"},
		"the daemon's program as text": {func(m *Manifest) { m.Files[1].Path = PathDaemon }, "the daemon's own"},
		"a program elsewhere": {
			func(m *Manifest) { m.Services[3].Command = `C:\Windows\System32\cmd.exe /c x` }, `not an .exe in C:\k`},
		"a relative program": {func(m *Manifest) { m.Services[3].Command = `kubelet.exe` },
			"starts with a drive"},
		"a fact of another release": {func(m *Manifest) { m.Files[2].HostVariables[0].Fact = "moon" },
			`fact "moon" is not known`},
		"a program that climbs out": {func(m *Manifest) { m.Services[3].Command = `C:\k\..\x.exe` },
			"ends in a dot"},
		"an unknown fact": {func(m *Manifest) { m.Services[1].HostVariables[0].Fact = "moon" },
			`fact "moon" is not known`},
		"a file outside": {func(m *Manifest) { m.Files[0].Path = `C:\Windows\x` },
			"a manifest's files lie under"},
		"a file that is the daemon's": {func(m *Manifest) { m.Files[0].Path = `c:\K\wicd-STATE.json` },
			"the daemon's own"},
		"a file in the store": {func(m *Manifest) { m.Files[0].Path = DirStore + `\x` },
			"the daemon's own"},
		"a file twice in another case": {func(m *Manifest) { m.Files[0].Path = `c:\K\KUBELET.conf` },
			"is listed twice"},
		"a digest in capitals": {func(m *Manifest) { m.Files[0].Digest = strings.ToUpper(digestA) },
			"64 lower-case hex"},
		"a digest that is short": {func(m *Manifest) { m.Files[0].Digest = "aa" }, "64 lower-case hex"},
		"an environment name with =": {func(m *Manifest) { m.EnvironmentVars["A=B"] = "x" },
			"not a variable's name"},
		"the search path": {func(m *Manifest) { m.WatchedEnvironmentVars = []string{"Path"} },
			"belongs to Windows"},
		"a log elsewhere": {func(m *Manifest) { m.Services[0].Log = &Log{Path: `C:\k\x.log`} },
			`its log is not a file in C:\var\log`},
		"an environment value of two lines": {func(m *Manifest) { m.EnvironmentVars["A"] = "x\ny" },
			"control characters"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := sample()
			c.change(&m)
			err := m.Validate()
			if problem, ok := AsProblem(err); !ok || problem.Reason != ReasonManifestInvalid ||
				!strings.Contains(problem.Detail, c.want) {
				t.Errorf("want %q, got %v", c.want, err)
			}
		})
	}
}

func TestServicesStartByTheirPriorityAndTheirName(t *testing.T) {
	t.Parallel()
	m := Manifest{Services: []Service{{Name: "a", Priority: 3}, {Name: "c", Priority: 2}, {Name: "b", Priority: 2},
		{Name: "d"}}}
	var order []string
	for _, s := range m.StartOrder() {
		order = append(order, s.Name)
	}
	if want := []string{"d", "b", "c", "a"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

func TestPathRules(t *testing.T) {
	t.Parallel()
	for path, legal := range map[string]bool{
		`C:\k\kubelet.exe`:                 true,
		`c:\var\log\x y.log`:               true,
		`C:\k`:                             true,
		`C:\`:                              true,
		`C:k`:                              false,
		`\\server\share`:                   false,
		`\\?\C:\k`:                         false,
		`C:\k\`:                            false,
		`C:\k\\x`:                          false,
		`C:\k\..\x`:                        false,
		`C:\k\.\x`:                         false,
		`C:\k\x.`:                          false,
		`C:\k\x `:                          false,
		`C:\k\a:b`:                         false,
		`C:\k/x`:                           false,
		`C:\k\nul`:                         false,
		`C:\k\NUL.txt`:                     false,
		`C:\k\com1`:                        false,
		`C:\k\com10`:                       true,
		`C:\k\COM¹.txt`:                    false,
		`C:\` + strings.Repeat("a", 255):   true,
		`C:\` + strings.Repeat("a", 256):   false,
		"C:\\k\\x\x00":                     false,
		"C:\\k\\\xff":                      false,
		`C:\a\` + strings.Repeat("ä", 255): true,
		`C:\a\` + strings.Repeat("😀", 128): false,
		`1:\k`:                             false,
	} {
		if err := CheckPath(path); (err == nil) != legal {
			t.Errorf("%q: valid should be %v, got %v", path, legal, err)
		}
	}
}

func TestExecutable(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		`C:\k\a.exe -x "y z"`: `C:\k\a.exe`,
		`"C:\k\a b.exe" -x`:   `C:\k\a b.exe`,
		`C:\k\a.exe`:          `C:\k\a.exe`,
		``:                    ``,
	} {
		if got := Executable(command); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}
