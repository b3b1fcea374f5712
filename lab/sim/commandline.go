package sim

import "strings"

// splitCommandLine splits a command line into arguments, like CommandLineToArgvW and all programs in C and Go. A
// backslash is special only before a quotation mark. Inside quotation marks, two quotation marks stand for one.
func splitCommandLine(line string) []string {
	var args []string
	first := true
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return args
		}
		var arg string
		if first {
			arg, line = splitProgram(line)
			first = false
		} else {
			arg, line = splitArgument(line)
		}
		args = append(args, arg)
	}
}

// splitProgram splits off the first word of a command line. In this word, a backslash never escapes a quotation mark.
func splitProgram(line string) (word, rest string) {
	if quoted, found := strings.CutPrefix(line, `"`); found {
		word, rest, _ = strings.Cut(quoted, `"`)
		return word, rest
	}
	if end := strings.IndexAny(line, " \t"); end >= 0 {
		return line[:end], line[end:]
	}
	return line, ""
}

func splitArgument(line string) (word, rest string) {
	var b strings.Builder
	quoted, slashes := false, 0
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\':
			slashes++
			continue
		case c == '"':
			b.WriteString(strings.Repeat(`\`, slashes/2))
			switch {
			case slashes%2 == 1:
				b.WriteByte('"')
			case quoted && i+1 < len(line) && line[i+1] == '"':
				b.WriteByte('"')
				i++
			default:
				quoted = !quoted
			}
			slashes = 0
		case !quoted && (c == ' ' || c == '\t'):
			b.WriteString(strings.Repeat(`\`, slashes))
			return b.String(), line[i:]
		default:
			b.WriteString(strings.Repeat(`\`, slashes))
			slashes = 0
			b.WriteByte(c)
		}
	}
	b.WriteString(strings.Repeat(`\`, slashes))
	return b.String(), ""
}

// joinCommandLine is the inverse of splitCommandLine. It puts an argument in quotation marks only if this is necessary.
func joinCommandLine(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = quoteArgument(arg)
	}
	return strings.Join(quoted, " ")
}

func quoteArgument(arg string) string {
	if arg != "" && !strings.ContainsAny(arg, " \t\"") {
		return arg
	}
	var b strings.Builder
	b.WriteByte('"')
	slashes := 0
	for i := 0; i < len(arg); i++ {
		switch arg[i] {
		case '\\':
			slashes++
			continue
		case '"':
			b.WriteString(strings.Repeat(`\`, 2*slashes+1))
		default:
			b.WriteString(strings.Repeat(`\`, slashes))
		}
		slashes = 0
		b.WriteByte(arg[i])
	}
	b.WriteString(strings.Repeat(`\`, 2*slashes))
	b.WriteByte('"')
	return b.String()
}
