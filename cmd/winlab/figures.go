package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// writeFigures writes figures as JSON to out. If path is not empty, it also writes them to the file at this path.
func writeFigures(out io.Writer, path string, figures any) error {
	content, err := encoded(figures)
	if err != nil {
		return err
	}
	if _, err = out.Write(content); err != nil || path == "" {
		return err
	}
	return writeFile(path, content)
}

func writeJSON(path string, report any) error {
	content, err := encoded(report)
	if err != nil {
		return err
	}
	return writeFile(path, content)
}

func encoded(what any) ([]byte, error) {
	content, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the report: %w", err)
	}
	return append(content, '\n'), nil
}

func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the report's directory: %w", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
