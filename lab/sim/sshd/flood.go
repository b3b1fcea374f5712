package sshd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// flood writes until the reader closes the stream.
func flood(ctx context.Context, to io.Writer) {
	piece := bytes.Repeat([]byte("more of it, "), 1<<10)
	for ctx.Err() == nil {
		if _, err := to.Write(piece); err != nil {
			return
		}
	}
}

// floodRequests sends SSH requests until the connection ends. It asks for no replies.
func floodRequests(conn ssh.Conn) {
	piece := bytes.Repeat([]byte("more"), 1<<12)
	for {
		if _, _, err := conn.SendRequest("flood@example.com", false, piece); err != nil {
			return
		}
	}
}

// floodSession sends an exit status that is invalid. Then it sends requests until the session ends.
func floodSession(channel ssh.Channel) {
	_, err := channel.SendRequest("exit-status", false, nil)
	for err == nil {
		_, err = channel.SendRequest("flood@example.com", false, nil)
	}
}

// endless is the listing of a directory that never ends.
type endless struct{}

// ListAt fills the whole slice with entries.
func (endless) ListAt(to []os.FileInfo, offset int64) (int, error) {
	for i := range to {
		to[i] = entry{winos.FileInfo{Name: fmt.Sprintf("file-%d", offset+int64(i))}}
	}
	return len(to), nil
}

// nested is the listing of a folder that contains one folder.
func nested() listing { return listing{entry{winos.FileInfo{Name: "folder", Dir: true}}} }
