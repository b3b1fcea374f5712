package acceptance

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The protocol between Sonobuoy and its plugins (https://sonobuoy.io/docs/main/plugins/): an environment variable names
// the directory for results. In this directory, the plugin writes a file "done" that contains the path of the archive
// to send. If the plugin ends without this file, Sonobuoy waits for hours.
const (
	sonobuoyVariable = "SONOBUOY_RESULTS_DIR"
	sonobuoyDefault  = "/tmp/sonobuoy/results"
	sonobuoyDone     = "done"
	// Sonobuoy's sender derives the file type from everything after the first dot of the path.
	sonobuoyArchive = "wmco-e2e.tar.gz"
)

func sonobuoyDirectory() string { return cmp.Or(os.Getenv(sonobuoyVariable), sonobuoyDefault) }

// notBegun is the report of a run that could not begin. Its only row has failed.
func notBegun(err error) Report {
	return Report{Results: []Result{{Row: Row{Number: "A76", Section: "wmco-e2e", Title: "the run begins"},
		Verdict: Failed, Reason: err.Error()}}}
}

// handOver packs the files of a directory, and tells Sonobuoy to send them.
func handOver(results, to string) (err error) {
	name := filepath.Join(to, sonobuoyArchive)
	if err = pack(results, name); err != nil {
		return fmt.Errorf("packing results for Sonobuoy: %w", err)
	}
	// Write the file "done" atomically, because Sonobuoy reads it as soon as it exists.
	done := filepath.Join(to, sonobuoyDone)
	if err = os.WriteFile(done+".tmp", []byte(name), 0o644); err == nil { //nolint:gosec // another container reads it
		err = os.Rename(done+".tmp", done)
	}
	if err != nil {
		return fmt.Errorf("writing the path of the results for Sonobuoy: %w", err)
	}
	return nil
}

func pack(directory, name string) error {
	file, err := os.Create(name) //nolint:gosec // Sonobuoy names the directory
	if err != nil {
		return err
	}
	compressed := gzip.NewWriter(file)
	archive := tar.NewWriter(compressed)
	return errors.Join(archive.AddFS(os.DirFS(directory)), archive.Close(), compressed.Close(), file.Close())
}
