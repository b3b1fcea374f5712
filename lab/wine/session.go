//go:build linux

package wine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/windows-nodes/wmco/lab/wine/remote"
)

// session is the time between one power on and the next power off.
type session struct {
	cell   *cell
	keeper *exec.Cmd
	host   *remote.Host
	// said is the standard error of the keeper, which also contains the messages of Wine.
	said     *tail
	forwards []*forward
	// down is closed when the host goes down for any reason. over is closed when the keeper has ended.
	down, over chan struct{}
	once       sync.Once
}

// keeperPath is the path of the keeper on a host.
const keeperPath = `C:\windows\keeper.exe`

// bootTimeout is the maximum duration of a boot. On two idle cores, a boot takes half a second.
const bootTimeout = 60 * time.Second

// begin boots the host: the first Windows program of a session starts Wine's server and the services.
func (m *Machine) begin(ctx context.Context) (_ *session, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	c, err := m.template.openCell(ctx, m.prefix, m.options.Hostname, netip.PrefixFrom(m.options.Address, addressBits))
	if err != nil {
		return nil, err
	}
	s := &session{cell: c, said: &tail{}, down: make(chan struct{}), over: make(chan struct{})}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w; Wine said: %s", err, s.said)
			s.end(false)
		}
	}()
	if err = s.keep(m.template.wine); err != nil {
		close(s.over)
		return nil, err
	}
	if m.template.isolated {
		for _, target := range m.options.Reach {
			if err = s.forward(target); err != nil {
				return nil, err
			}
		}
	}
	if _, err = s.host.Facts(ctx); err != nil {
		return nil, fmt.Errorf("waiting for the host to be up: %w", err)
	}
	return s, nil
}

// forward makes a server of this machine reachable from the host.
func (s *session) forward(target netip.AddrPort) error {
	f, err := s.cell.forward(target)
	if err != nil {
		return fmt.Errorf("making %s reachable on the host: %w", target, err)
	}
	s.forwards = append(s.forwards, f)
	return nil
}

// keep starts the keeper. It runs until its standard input ends.
func (s *session) keep(wine string) error {
	s.keeper = s.cell.command(context.Background(), filepath.Join(s.cell.prefix, "drive_c"), wine, keeperPath)
	s.keeper.Stderr = s.said
	in, err := s.keeper.StdinPipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	out, err := s.keeper.StdoutPipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	if err = s.keeper.Start(); err != nil {
		return fmt.Errorf("starting the host's keeper: %w", err)
	}
	s.host = remote.Dial(duplex{out, in})
	go func() {
		_ = s.keeper.Wait() // the reason of its end is in its standard error
		s.goDown()
		close(s.over)
	}()
	return nil
}

// goDown marks the host as down.
func (s *session) goDown() { s.once.Do(func() { close(s.down) }) }

// end ends all processes of the session. If save is true, Wine first writes its registry.
func (s *session) end(save bool) {
	s.goDown()
	if save {
		s.cell.save()
	}
	if s.host != nil {
		s.host.Close()
	}
	for _, f := range s.forwards {
		f.close()
	}
	s.cell.close()
	<-s.over
}

// duplex combines the two pipes of a program into one stream.
type duplex struct {
	io.ReadCloser
	in io.WriteCloser
}

func (d duplex) Write(p []byte) (int, error) { return d.in.Write(p) }

func (d duplex) Close() error { return errors.Join(d.in.Close(), d.ReadCloser.Close()) }
