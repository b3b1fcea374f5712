package cluster

import (
	"errors"
	"strings"
)

// execStart is the command of a systemd unit, as words: the last ExecStart= of its sections [Service]. It knows continued lines, comments between
// them, quotes and backslashes; it expands neither variables nor specifiers.
// https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Command%20lines
func execStart(unit string) ([]string, error) {
	var command string
	section := ""
	for _, line := range logicalLines(unit) {
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = line
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok && section == "[Service]" && strings.TrimSpace(key) == "ExecStart" {
			command = strings.TrimSpace(value)
		}
	}
	if command == "" {
		return nil, errors.New("it has no ExecStart")
	}
	return splitWords(command)
}

// logicalLines joins lines that end in a backslash with the next, which may have comments in between, and drops empty lines and comments.
func logicalLines(text string) (lines []string) {
	var current strings.Builder
	continued := false
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") || line == "" && !continued {
			continue
		}
		part, more := strings.CutSuffix(line, `\`)
		current.WriteString(part)
		if continued = more; more {
			current.WriteByte(' ')
			continue
		}
		lines = append(lines, strings.TrimSpace(current.String()))
		current.Reset()
	}
	if current.Len() > 0 {
		lines = append(lines, strings.TrimSpace(current.String()))
	}
	return lines
}

// splitWords splits at white space outside of quotes and takes the quotes away. A backslash makes the next character an ordinary one, but in single quotes.
func splitWords(command string) (words []string, err error) {
	var word strings.Builder
	var quote rune
	inWord, escaped := false, false
	for _, r := range command {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, inWord = r, true
		case quote == 0 && (r == ' ' || r == '\t' || r == '\r'):
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("its command ends within quotes")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// flagValue finds the last value of a flag with one or two hyphens, as --flag=value or --flag value; the second answer says whether it is there.
func flagValue(words []string, name string) (value string, found bool) {
	for i, word := range words {
		flag, inline, hasInline := strings.Cut(word, "=")
		if flag != "--"+name && flag != "-"+name {
			continue
		}
		switch {
		case hasInline:
			value, found = inline, true
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			value, found = words[i+1], true
		}
	}
	return value, found
}
