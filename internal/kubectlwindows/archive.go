package kubectlwindows

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"html/template"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// archive is a tar.gz that is bounded in size. It may be written from several goroutines.
type archive struct {
	redactor redactor
	now      time.Time

	mu    sync.Mutex
	tar   *tar.Writer
	gzip  *gzip.Writer
	left  int64
	files []string
	// problems say what is missing, and why.
	problems []string
}

// errFull says that the bound is reached.
var errFull = errors.New("the archive has its greatest size")

func newArchive(out io.Writer, limit int64, r redactor, now time.Time) *archive {
	compressed := gzip.NewWriter(out)
	return &archive{redactor: r, now: now, tar: tar.NewWriter(compressed), gzip: compressed, left: limit}
}

// add writes a file, redacted, if there is room for it.
func (a *archive) add(name string, text []byte) error {
	text = a.redactor.text(text)
	a.mu.Lock()
	defer a.mu.Unlock()
	if int64(len(text)) > a.left {
		a.problems = append(a.problems, name+": "+errFull.Error())
		return errFull
	}
	a.left -= int64(len(text))
	a.files = append(a.files, name)
	return a.write(name, text)
}

func (a *archive) write(name string, text []byte) error {
	header := &tar.Header{Name: path.Join("bundle", path.Clean("/"+name)), Mode: 0o600, Size: int64(len(text)),
		ModTime: a.now}
	if err := a.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if _, err := a.tar.Write(text); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// lack notes what is missing.
func (a *archive) lack(what string, err error) {
	if err == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.problems = append(a.problems, what+": "+string(a.redactor.text([]byte(err.Error()))))
}

// page is read in a browser. The template escapes what objects and hosts say.
const page = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Windows nodes, {{.Time}}</title>
<style>body{font:14px sans-serif;margin:2em}pre{background:#f4f4f4;padding:1em;overflow:auto}</style>
<h1>Windows nodes, {{.Time}}</h1>
<pre>{{.Status}}</pre>
{{with .Problems}}<h2>What is missing</h2><ul>{{range .}}<li>{{.}}</li>{{end}}</ul>{{end}}
<h2>Files</h2>
{{range .Groups}}<h3>{{.Name}}</h3><ul>{{range .Files}}<li><a href="{{.}}">{{.}}</a></li>{{end}}</ul>
{{end}}</html>
`

// group are the files of one folder.
type group struct {
	Name  string
	Files []string
}

// close writes the index, which is beyond the bound, and ends the archive.
func (a *archive) close(status string) error {
	slices.Sort(a.files)
	var groups []group
	for _, file := range a.files {
		folder := "summary"
		if i := strings.LastIndex(file, "/"); i > 0 {
			folder = file[:i]
		}
		if len(groups) == 0 || groups[len(groups)-1].Name != folder {
			groups = append(groups, group{Name: folder})
		}
		last := &groups[len(groups)-1]
		last.Files = append(last.Files, file)
	}
	var text strings.Builder
	err := template.Must(template.New("index").Parse(page)).Execute(&text, map[string]any{
		"Time":   a.now.UTC().Format(time.RFC3339),
		"Status": string(a.redactor.text([]byte(status))), "Problems": a.problems, "Groups": groups})
	if err == nil {
		err = a.write("index.html", []byte(text.String()))
	}
	return errors.Join(err, a.tar.Close(), a.gzip.Close())
}
