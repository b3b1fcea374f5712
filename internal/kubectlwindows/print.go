package kubectlwindows

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/diagnosis"
)

// printable is the result of a command.
type printable interface {
	// Print writes the result as text.
	Print(out io.Writer, style diagnosis.Style) error
	// Healthy reports whether the result contains no problem.
	Healthy() bool
}

// print prints the result in the format of the flag -o. In text, it uses the style of the terminal.
func (p *plugin) print(out io.Writer, found printable) error {
	var text string
	var err error
	switch p.output {
	case "json":
		text, err = toJSON(found)
	case "yaml":
		text, err = toYAML(found)
	default:
		return found.Print(out, p.style())
	}
	if err == nil {
		_, err = io.WriteString(out, text)
	}
	return err
}

// show prints a result. `incomplete` says why the result is incomplete, and show returns it as its error. If a complete
// result contains a problem, show returns errUnhealthy.
func (p *plugin) show(found printable, incomplete error) error {
	err := errors.Join(incomplete, p.print(p.Out, found))
	if err == nil && !found.Healthy() {
		return errUnhealthy
	}
	return err
}

// toJSON encodes a result as JSON. It escapes control characters, which occur only in strings.
func toJSON(found any) (string, error) {
	text, err := json.MarshalIndent(found, "", "  ")
	if err != nil {
		return "", fmt.Errorf("writing JSON: %w", err)
	}
	return diagnosis.Visible(string(text)) + "\n", nil
}

// toYAML converts the output of toJSON, which has escaped the control characters that YAML doesn't allow.
func toYAML(found any) (string, error) {
	text, err := toJSON(found)
	if err != nil {
		return "", err
	}
	written, err := yaml.JSONToYAML([]byte(text))
	if err != nil {
		return "", fmt.Errorf("writing YAML: %w", err)
	}
	return diagnosis.Visible(string(written)), nil
}
