package sshhost

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/pkg/sftp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/windows-nodes/wmco/internal/contract"
)

// FuzzListing simulates a host whose SFTP server answers each request with any bytes. There must be no panic, and the
// operator must not read more entries than the limit for one step.
func FuzzListing(f *testing.F) {
	status := func(code byte) []byte { // SSH_FXP_STATUS
		return []byte{101, 0, 0, 0, 0, 0, 0, 0, code, 0, 0, 0, 0, 0, 0, 0, 0}
	}
	handle := []byte{102, 0, 0, 0, 0, 0, 0, 0, 1, 'h'}
	entry := func(count uint32, name string, attributes ...byte) []byte { // SSH_FXP_NAME
		packet := binary.BigEndian.AppendUint32([]byte{104, 0, 0, 0, 0}, count)
		for range 2 { // name and long name
			packet = append(binary.BigEndian.AppendUint32(packet, uint32(len(name))), name...)
		}
		return append(packet, attributes...)
	}
	folder := []byte{0, 0, 0, 4, 0, 0, 0x40, 0}
	f.Add(handle, entry(1, "deeper", folder...), status(1))
	f.Add(handle, entry(1, `..\..\Windows`, folder...), status(0))
	f.Add(handle, entry(0xffffffff, "x"), status(4))
	f.Add(status(0), handle, entry(1, "\x00\n"))
	f.Add([]byte{104, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []byte{}, []byte{102})
	f.Fuzz(func(t *testing.T, first, second, third []byte) {
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = theirs.Close() }()
			answer(theirs, first, second, third)
		}()
		w := newWire(ours, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
		w.beginStep()
		if files, err := sftp.NewClientPipe(w, w); err == nil {
			left := maxEntries
			_ = removeAll(files, contract.RPCDir, maxDepth, &left)
			if left < -maxEntries*maxDepth {
				t.Errorf("%d entries were read", maxEntries-left)
			}
			_ = files.Close()
		}
		_ = ours.Close()
		<-done
	})
}

// answer simulates an SFTP server. After the handshake, it answers each request with one of the packets. If a packet
// has a request number, answer inserts the number of the request. It stops after as many answers as an endless host
// would send in one step.
func answer(conn net.Conn, packets ...[]byte) {
	send := func(packet []byte) bool {
		_, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(packet))), packet...))
		return err == nil
	}
	for i := range 200 {
		var length uint32
		if binary.Read(conn, binary.BigEndian, &length) != nil || length > 1<<20 {
			return
		}
		request := make([]byte, length)
		if _, err := io.ReadFull(conn, request); err != nil {
			return
		}
		packet := []byte{2, 0, 0, 0, 3} // SSH_FXP_VERSION
		if i > 0 {
			packet = bytes.Clone(packets[(i-1)%len(packets)])
			if len(packet) >= 5 && len(request) >= 5 {
				copy(packet[1:5], request[1:5])
			}
		}
		if !send(packet) {
			return
		}
	}
}
