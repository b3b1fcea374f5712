package sshd_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/pkg/sftp"

	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// nullFile is a file that discards all data, so that the benchmark measures only the server.
type nullFile struct{}

func (nullFile) ReadAt(p []byte, _ int64) (int, error)  { return len(p), nil }
func (nullFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nullFile) Truncate(int64) error                   { return nil }
func (nullFile) Close() error                           { return nil }

type nullMachine struct{ *diskMachine }

func (nullMachine) OpenFile(string, int) (sshd.File, error) { return nullFile{}, nil }

// BenchmarkUpload uploads 8 MiB to each of several hosts at the same time. The client and the servers run in one
// process.
func BenchmarkUpload(b *testing.B) {
	const size = 8 << 20
	content := pattern(size)
	for _, hosts := range []int{1, 50} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			var clients []*sftp.Client
			for range hosts {
				m := newMachine(b)
				s, err := sshd.Start(b.Context(),
					sshd.Options{Machine: nullMachine{m}, Listen: netip.MustParseAddrPort("127.0.0.1:0")})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(s.Close)
				h := &host{Server: s, machine: m, key: newKey(b)}
				if err := sshd.Authorize(m, h.key.PublicKey()); err != nil {
					b.Fatal(err)
				}
				clients = append(clients, h.sftp(b, sftp.UseConcurrentWrites(true)))
			}
			b.SetBytes(int64(hosts) * size)
			b.ReportAllocs()
			for b.Loop() {
				var all sync.WaitGroup
				for _, c := range clients {
					all.Go(func() {
						f, err := c.Create("x")
						if err != nil {
							b.Error(err)
							return
						}
						if _, err := f.ReadFromWithConcurrency(bytes.NewReader(content), 64); err != nil {
							b.Error(err)
						}
						_ = f.Close()
					})
				}
				all.Wait()
			}
		})
	}
}
