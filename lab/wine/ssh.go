//go:build linux

package wine

import (
	"context"
	"io"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

var _ sshd.Machine = (*Machine)(nil)

// Hostname returns the host name that Windows programs see. While the host is off, it is empty.
func (m *Machine) Hostname() string {
	host, err := m.Windows()
	if err != nil {
		return ""
	}
	facts, err := host.Facts(context.Background())
	if err != nil {
		return ""
	}
	return facts.Hostname
}

// Files returns the file system of the host as its programs see it. The result can still be used after a reboot. While
// the host is off, every call fails.
func (m *Machine) Files() winos.Files { return files{m} }

type files struct{ machine *Machine }

func (f files) Open(path string) (io.ReadCloser, error) {
	host, err := f.machine.Windows()
	if err != nil {
		return nil, err
	}
	return host.Files.Open(path)
}

func (f files) Create(path string, access winos.Access) (io.WriteCloser, error) {
	host, err := f.machine.Windows()
	if err != nil {
		return nil, err
	}
	return host.Files.Create(path, access)
}

func (f files) Rename(from, to string) error {
	host, err := f.machine.Windows()
	if err != nil {
		return err
	}
	return host.Files.Rename(from, to)
}

func (f files) Remove(path string) error {
	host, err := f.machine.Windows()
	if err != nil {
		return err
	}
	return host.Files.Remove(path)
}

func (f files) RemoveAll(path string) error {
	host, err := f.machine.Windows()
	if err != nil {
		return err
	}
	return host.Files.RemoveAll(path)
}

func (f files) Stat(path string) (winos.FileInfo, error) {
	host, err := f.machine.Windows()
	if err != nil {
		return winos.FileInfo{}, err
	}
	return host.Files.Stat(path)
}

func (f files) List(dir string) ([]winos.FileInfo, error) {
	host, err := f.machine.Windows()
	if err != nil {
		return nil, err
	}
	return host.Files.List(dir)
}

func (f files) MkdirAll(path string, access winos.Access) error {
	host, err := f.machine.Windows()
	if err != nil {
		return err
	}
	return host.Files.MkdirAll(path, access)
}

func (f files) Restrict(path string) error {
	host, err := f.machine.Windows()
	if err != nil {
		return err
	}
	return host.Files.Restrict(path)
}
