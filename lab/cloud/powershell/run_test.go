package powershell_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/lab/cloud/powershell"
)

func TestWhatAScriptLeaves(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script string
		before map[string]string
		files  map[string]string
		ports  []int
	}{
		"nothing": {script: "# only a comment\n<# and\nanother #>"},
		"a file": {
			script: `Set-Content -Path 'C:\a.txt' -Value 'one'`,
			files:  map[string]string{`c:\a.txt`: "one\r\n"},
		},
		"text by way of variables": {
			script: "$dir = Join-Path $env:ProgramData 'ssh'\n$text = \"it's `$5 for ${Name}\"\n$Name = " +
				"'x'\n[IO.File]::WriteAllText((Join-Path $dir 'k'), ($text + [Environment]::NewLine))",
			files: map[string]string{`c:\programdata\ssh\k`: "it's $5 for \r\n"},
		},
		"by way of functions and blocks": {
			script: "function Put([string] $Path, [string] $Text) {\n  if (-not (Test-Path $Path)) { " +
				"[IO.File]::WriteAllText($Path + '.new', $Text) }\n  Move-Item -LiteralPath ($Path + '.new') " +
				"-Destination $Path -Force\n}\n" +
				"function Step($Name, $Block) { try { & $Block | Out-Null } catch { Set-Content 'C:\\failed' $Name " +
				"} }\n" +
				"Step 'first' {\n  Put 'C:\\b' 'two'\n}",
			files: map[string]string{`c:\b`: "two"},
		},
		"encoded text": {
			script: `$x = 'aGVsbG8='` + "\n" +
				`[IO.File]::WriteAllText('C:\c', [Text.Encoding]::ASCII.GetString([Convert]::FromBase64String($x)))`,
			files: map[string]string{`c:\c`: "hello"},
		},
		"here-strings": {
			script: "$a = @'\n$not a variable\n'@\n$b = 'v'\n$c = @\"\n<$b>\n\"@\nSet-Content 'C:/a' $a; " +
				"Set-Content 'C:/b' $c",
			files: map[string]string{`c:\a`: "$not a variable\r\n", `c:\b`: "<v>\r\n"},
		},
		"what was removed is gone": {
			script: "Set-Content C:\\x\\key_1 a\nSet-Content C:\\x\\more b\nRemove-Item -Path 'C:\\x\\key_*' -Force",
			files:  map[string]string{`c:\x\more`: "b\r\n"},
		},
		"lines that were there stay": {
			before: map[string]string{`C:\k`: "a\r\nmine\n\nb"},
			script: "$mine = 'mine'\n$lines = @($mine)\n$lines += @([IO.File]::ReadAllText('C:\\k') -split '\\r?\\n') -cne " +
				"'' -cne $mine\n[IO.File]::WriteAllText('C:\\k', (($lines -join [Environment]::NewLine) + " +
				"[Environment]::NewLine))",
			files: map[string]string{`c:\k`: "mine\r\na\r\nb\r\n"},
		},
		"lists": {
			script: "$all = @('x', 'y')\n$all += 'z'\nSet-Content C:\\l ($all -join '+')",
			files:  map[string]string{`c:\l`: "x+y+z\r\n"},
		},
		"firewall rules": {
			script: "$rule = @{\n  Direction = 'Inbound'; Action = 'Allow'\n  Protocol = 'TCP'; LocalPort = $Port\n}\n" +
				"function Open([int] $Port) { $rule = @{ Direction = 'Inbound'; Action = 'Allow'; Protocol = " +
				"'TCP'; LocalPort = $Port }; New-NetFirewallRule -Name x @rule }\n" +
				"Open 22\nOpen 10250\nNew-NetFirewallRule -Direction Inbound -Action Block -Protocol TCP " +
				"-LocalPort 23\n" +
				"New-NetFirewallRule -Direction Inbound -Action Allow -Protocol TCP -LocalPort 22",
			ports: []int{22, 10250},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := powershell.Run(test.script, map[string]string{"ProgramData": `C:\ProgramData`}, test.before)
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(got.Files, test.files) && len(got.Files)+len(test.files) > 0 {
				t.Errorf("files %q, want %q", got.Files, test.files)
			}
			if !slices.Equal(got.Ports, test.ports) {
				t.Errorf("ports %v, want %v", got.Ports, test.ports)
			}
		})
	}
}

func TestWhatPowerShellCantReadIsNotRun(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"a brace that opens":     "Set-Content a b\nif ($true) {",
		"a brace that closes":    "Set-Content a b\n}",
		"brackets that cross":    "Set-Content (a] b)",
		"an open string":         "Set-Content a 'b",
		"an open template":       `Set-Content a "b`,
		"an open comment":        "Set-Content a b <# c",
		"an open here-string":    "Set-Content a @'\nb '@",
		"a function without end": "function f { f }\nf",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := powershell.Run(script, nil, nil); err == nil || len(got.Files) > 0 {
				t.Errorf("the script with a syntax error wrote %v, %v", got.Files, err)
			}
		})
	}
}

func FuzzRun(f *testing.F) {
	f.Add("function f($a) { [IO.File]::WriteAllText($a, \"`$x$a\") }\nf (Join-Path 'C:\\a' 'b')")
	f.Add("@{ a = 'b'\n c = @(1,2) }\n@'\nx\n'@")
	f.Fuzz(func(t *testing.T, script string) {
		got, err := powershell.Run(script, nil, nil)
		for path := range got.Files {
			if err != nil || strings.Contains(path, "/") {
				t.Errorf("file %q, %v", path, err)
			}
		}
	})
}
