package cluster

import (
	"errors"
	"strings"
)

// execStart is the command of a systemd unit, as words: the last ExecStart= of its sections
// [Service]. It knows continued lines, comments between them, quotes and backslashes; it expands
// neither variables nor specifiers.
// https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Command%20lines
func execStart(unit string) ([]string, error) {
	var command string
	section := ""
	for _, line := range logicalLines(unit) {
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = line
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok && section == "[Service]" &&
			strings.TrimSpace(key) == "ExecStart" {
			command = strings.TrimSpace(value)
		}
	}
	if command == "" {
		return nil, errors.New("it has no ExecStart")
	}
	return splitWords(command)
}

// logicalLines joins lines that end in a backslash with the next, which may have comments in
// between, and drops empty lines and comments.
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

// splitWords splits at white space outside of quotes and takes the quotes away. A backslash makes
// the next character an ordinary one, but in single quotes.
func splitWords(command string) ([]string, error) {
	var s splitter
	for _, r := range command {
		s.take(r)
	}
	if s.quote != 0 || s.escaped {
		return nil, errors.New("its command ends within quotes")
	}
	s.end()
	return s.words, nil
}

// splitter is where in a command the reader is.
type splitter struct {
	words           []string
	word            strings.Builder
	quote           rune // the open one, or 0
	inWord, escaped bool
}

func (s *splitter) take(r rune) {
	switch {
	case s.escaped:
		s.escaped = false
		s.add(r)
	case r == '\\' && s.quote != '\'':
		s.escaped, s.inWord = true, true
	case s.quote != 0:
		if r == s.quote {
			s.quote = 0
			return
		}
		s.add(r)
	case r == '"' || r == '\'':
		s.quote, s.inWord = r, true
	case r == ' ' || r == '\t' || r == '\r':
		s.end()
	default:
		s.add(r)
	}
}

func (s *splitter) add(r rune) {
	s.word.WriteRune(r)
	s.inWord = true
}

func (s *splitter) end() {
	if s.inWord {
		s.words = append(s.words, s.word.String())
	}
	s.word.Reset()
	s.inWord = false
}

// flagValue finds the last value of a flag with one or two hyphens, as --flag=value or --flag
// value; the second answer says whether it is there.
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
