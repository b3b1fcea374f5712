package sim

import (
	"io/fs"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

type logsFace struct{ face }

var _ winos.Logs = logsFace{}

func (f logsFace) Empty(path string) error {
	if err := f.p.alive(); err != nil {
		return err
	}
	return f.m.volume.empty(path)
}

func (v *volume) empty(path string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, err := v.find(path)
	if err == nil {
		err = opening{flag: writeOnly}.allowed(n)
	}
	if err != nil {
		return &fs.PathError{Op: "empty", Path: path, Err: err}
	}
	v.used -= n.content.size
	n.content.resize(0)
	n.modified = v.now()
	return nil
}
