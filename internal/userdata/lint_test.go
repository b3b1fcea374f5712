package userdata_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/userdata"
)

// The linter knows only the part of PowerShell that the template may use. It reports anything else as an error. It
// doesn't parse PowerShell. The tests in test/powershell use PowerShell's own parser.

// kind is the kind of a token.
type kind string

const (
	word     kind = "word"     // a command, a parameter, an operator such as -eq, or a bare argument
	text     kind = "text"     // '…'
	variable kind = "variable" // $name or @name
	typeName kind = "type"     // [name]
	symbol   kind = "symbol"   // anything else, one character
	newline  kind = "newline"  // the end of a statement
)

type token struct {
	kind  kind
	value string
	line  int
	// glued means that there is no space before the token.
	glued bool
}

// commands returns the allowed commands: cmdlets of Windows Server 2019 and later, and the script's own functions.
func commands() []string {
	return strings.Fields(
		`Add-Content Add-WindowsCapability Copy-Item Enable-LocalUser Get-FileHash Get-Item Get-ItemProperty Get-LocalUser Get-NetFirewallRule Get-Service
		Invoke-WebRequest Join-Path Move-Item New-Item New-NetFirewallRule New-Object Out-Null Out-String Remove-Item Restart-Service Set-Acl Set-LocalUser
		Set-NetFirewallRule Set-Service Set-StrictMode Split-Path Start-Process Start-Service Start-Sleep Stop-Service Test-Path Where-Object
		Invoke-Step New-Folder Set-PrivateFile Set-Rule Write-Log`)
}

// called returns the variables that may follow the call operator &, because their values are a program or a script
// block.
func called() []string { return []string{"Step", "keygen", "launch"} }

func keywords() []string {
	return strings.Fields("function if else elseif for foreach in try catch finally throw return exit")
}

// operators returns the allowed operators of PowerShell. All other words with a hyphen are parameters.
func operators() []string {
	return strings.Fields("-and -or -not -eq -ne -gt -lt -le -ge -like -match -notmatch -ceq -cne -notcontains " +
		"-contains -split -join -bor -f -in")
}

// lint returns all errors in a script.
func lint(script string) (complaints []string) {
	tokens, complaints := scan(script)
	complaints = append(complaints, balance(tokens)...)
	complaints = append(complaints, commandsOf(tokens)...)
	return append(complaints, variablesOf(tokens)...)
}

// scan splits a script into tokens. Double quotes, backticks, here-strings and characters outside ASCII are errors.
func scan(script string) (tokens []token, complaints []string) {
	line, glued := 1, false
	for rest := script; rest != ""; {
		t := token{kind: symbol, value: rest[:1], line: line, glued: glued}
		switch c := rest[0]; {
		case c == '\n':
			t.kind = newline
			line++
		case c == ' ':
			rest, glued = rest[1:], false
			continue
		case strings.HasPrefix(rest, "<#") && strings.Contains(rest, "#>"):
			comment, after, _ := strings.Cut(rest, "#>")
			line += strings.Count(comment, "\n")
			rest = after
			continue
		case c == '#':
			comment, _, _ := strings.Cut(rest, "\n")
			rest = rest[len(comment):]
			continue
		case c == '\'':
			t.kind, t.value = text, quoted(rest)
			if !strings.HasSuffix(t.value, "'") || len(t.value) < 2 || strings.Contains(t.value, "\n") {
				return tokens, append(complaints, fmt.Sprintf("line %d: a text does not end on its line", line))
			}
		case c == '$' || c == '@' && len(rest) > 1 && isLetter(rest[1]):
			t.kind, t.value = variable, rest[:1]+name(rest[1:], ":_")
		case c == '[' && isLetter(rest[1]) && strings.Contains(rest, "]"):
			t.kind, t.value = typeName, rest[:strings.IndexByte(rest, ']')+1]
		case isLetter(c) || c == '-' && isLetter(rest[1]) || c == '-' && strings.HasPrefix(rest, "--"):
			t.kind, t.value = word, rest[:1]+name(rest[1:], "-_")
		case c < ' ' || c > '~' || strings.ContainsRune("\"`%?~^*\\", rune(c)) || strings.HasPrefix(rest, "<") ||
			strings.HasPrefix(rest, ">"):
			complaints = append(complaints, fmt.Sprintf("line %d: the character %q is not known", line, rest[:1]))
		}
		tokens, rest, glued = append(tokens, t), rest[len(t.value):], t.kind != newline
	}
	return tokens, complaints
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

// quoted returns the text in single quotes at the beginning of rest. In such a text, two single quotes stand for one.
func quoted(rest string) string {
	for at := 1; at < len(rest); at++ {
		if rest[at] != '\'' {
			continue
		}
		if at+1 < len(rest) && rest[at+1] == '\'' {
			at++
			continue
		}
		return rest[:at+1]
	}
	return rest
}

func name(rest, further string) string {
	end := strings.IndexFunc(rest, func(r rune) bool {
		return (r > 'z' || !isLetter(byte(r))) && (r < '0' || r > '9') && !strings.ContainsRune(further, r)
	})
	if end < 0 {
		return rest
	}
	return rest[:end]
}

func balance(tokens []token) (complaints []string) {
	var open []token
	for _, t := range tokens {
		if t.kind != symbol {
			continue
		}
		switch t.value {
		case "(", "{", "[":
			open = append(open, t)
		case ")", "}", "]":
			pair := map[string]string{")": "(", "}": "{", "]": "["}[t.value]
			if len(open) == 0 || open[len(open)-1].value != pair {
				return []string{fmt.Sprintf("line %d: %s closes nothing", t.line, t.value)}
			}
			open = open[:len(open)-1]
		}
	}
	for _, t := range open {
		complaints = append(complaints, fmt.Sprintf("line %d: %s is not closed", t.line, t.value))
	}
	return complaints
}

// commandsOf returns an error for each word that stands in the position of a command and is not an allowed command, and
// for each call operator & without an allowed variable.
func commandsOf(tokens []token) (complaints []string) {
	for i, t := range tokens {
		before := token{kind: newline}
		if i > 0 {
			before = tokens[i-1]
		}
		starts := before.kind == newline || before.kind == symbol && strings.Contains("{(;|=", before.value) ||
			before.value == "-not" || before.value == "throw" || before.value == "return"
		switch {
		case t.value == "&" && t.kind == symbol:
			if i+1 == len(tokens) || tokens[i+1].kind != variable || !slices.Contains(called(), tokens[i+1].value[1:]) {
				complaints = append(complaints, fmt.Sprintf("line %d: something unknown is called", t.line))
			}
		case t.kind != word || !starts || slices.Contains(keywords(), t.value) || key(tokens, i):
		case slices.Contains(operators(), t.value) && t.value == "-not":
		case !slices.Contains(commands(), t.value):
			complaints = append(complaints, fmt.Sprintf("line %d: the command %q is not known", t.line, t.value))
		}
	}
	return complaints
}

// key reports whether the token is a key of a hash table: a single = follows it.
func key(tokens []token, i int) bool {
	return i+1 < len(tokens) && tokens[i+1].value == "="
}

// variablesOf returns an error for each variable without an assignment in the script. Under StrictMode, reading such a
// variable ends the script.
func variablesOf(tokens []token) (complaints []string) {
	known := strings.Fields("$_ $true $false $LASTEXITCODE $env:SystemRoot $env:ProgramData $env:ProgramFiles " +
		"$ErrorActionPreference $ProgressPreference")
	for i, t := range tokens {
		if t.kind != variable {
			continue
		}
		plain := "$" + strings.TrimPrefix(t.value[1:], "script:")
		assigned := i+1 < len(tokens) && (tokens[i+1].value == "=" || tokens[i+1].value == "in")
		parameter := i > 0 && tokens[i-1].kind == typeName && i+1 < len(tokens) &&
			strings.Contains(",)", tokens[i+1].value)
		switch {
		case assigned || parameter:
			known = append(known, plain)
		case !slices.Contains(known, plain):
			complaints = append(complaints, fmt.Sprintf("line %d: the variable %s has no value", t.line, t.value))
		}
	}
	return complaints
}

// unwrapped removes the tags around the script, as a cloud's agent does.
func unwrapped(script string) string {
	script = strings.TrimPrefix(script, "<powershell>\n")
	return strings.TrimSuffix(script, "</powershell>\n<persist>true</persist>\n")
}

func TestEveryScriptPassesTheLinter(t *testing.T) {
	t.Parallel()
	for _, platform := range platforms {
		in := userdata.Input{Platform: platform, PublicKey: publicKey, HostKey: hostKey(t)}
		for _, complaint := range lint(unwrapped(render(t, in))) {
			t.Errorf("%s: %s", platform, complaint)
		}
		in.HostKey = nil
		for _, complaint := range lint(unwrapped(render(t, in))) {
			t.Errorf("%s, without a host key: %s", platform, complaint)
		}
	}
}

func TestTheLinterFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := "$path = Join-Path $env:ProgramData 'ssh'\nif (Test-Path -LiteralPath $path) {\n    Write-Log ('{0} is " +
		"''there''' -f $path)\n}\n"
	if complaints := lint(good); len(complaints) > 0 {
		t.Fatalf("good code is refused: %v", complaints)
	}
	tests := map[string]string{
		"a block that is not closed":           "if ($true) {\n",
		"a parenthesis that opens nothing":     "Write-Log 'x')\n",
		"brackets that cross":                  "Write-Log @('x'\n}\n",
		"a text that does not end":             "Write-Log 'x\n",
		"a text of several lines":              "Write-Log 'x\ny'\n",
		"double quotes":                        "Write-Log \"x $path\"\n",
		"a backtick":                           "Write-Log `\n 'x'\n",
		"an alias":                             "iex 'x'\n",
		"an alias behind a pipe":               "Get-Service | % { $_ }\n",
		"an unknown command":                   "Remove-Computer\n",
		"an unknown command in a block":        "Invoke-Step 'x' { Format-Volume }\n",
		"an unknown command in an expression":  "$x = (Invoke-Expression 'x')\n",
		"a program that is called by its path": "& 'C:\\evil.exe'\n",
		"a variable that is called":            "$x = 'calc'\n& $x\n",
		"a variable without a value":           "Write-Log $nothing\n",
		"a here-string":                        "Write-Log @'\nx\n'@\n",
		"a redirection":                        "Get-Service > 'x'\n",
		"a letter that is not ASCII":           "Write-Log é\n",
		"a subexpression in a text":            "Write-Log \"$(exit)\"\n",
		"a typographic quote":                  "Write-Log ‘x’\n",
	}
	for name, script := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(lint(script)) == 0 {
				t.Errorf("the linter does not find the error: %s", script)
			}
		})
	}
}
