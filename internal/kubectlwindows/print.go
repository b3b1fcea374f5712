package kubectlwindows

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/diagnosis"
)

// printable is what a command found, for people.
type printable interface {
	Print(out io.Writer, style diagnosis.Style) error
}

// print writes what was found in the format of -o.
func (p *plugin) print(found printable) error {
	switch p.output {
	case "json":
		return p.printJSON(found)
	case "yaml":
		text, err := yaml.Marshal(found)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		_, err = p.Out.Write(text)
		return err
	}
	return found.Print(p.Out, p.style())
}

// printJSON writes JSON, which may have control characters in strings only; as their escapes they mean
// the same.
func (p *plugin) printJSON(found any) error {
	text, err := json.MarshalIndent(found, "", "  ")
	if err == nil {
		_, err = fmt.Fprintln(p.Out, diagnosis.Visible(string(text)))
	}
	return err
}
