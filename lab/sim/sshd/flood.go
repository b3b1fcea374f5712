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

// flood writes until nobody takes it any more.
func flood(ctx context.Context, to io.Writer) {
	piece := bytes.Repeat([]byte("more of it, "), 1<<10)
	for ctx.Err() == nil {
		if _, err := to.Write(piece); err != nil {
			return
		}
	}
}

// floodRequests sends requests of SSH's own that want no answer, until the connection ends.
func floodRequests(conn ssh.Conn) {
	piece := bytes.Repeat([]byte("more"), 1<<12)
	for {
		if _, _, err := conn.SendRequest("flood@example.com", false, piece); err != nil {
			return
		}
	}
}

// floodSession sends an exit status that can't be read, and then requests until the session ends.
func floodSession(channel ssh.Channel) {
	_, err := channel.SendRequest("exit-status", false, nil)
	for err == nil {
		_, err = channel.SendRequest("flood@example.com", false, nil)
	}
}

// endless is a listing that has no end.
type endless struct{}

// ListAt fills what it is given.
func (endless) ListAt(to []os.FileInfo, offset int64) (int, error) {
	for i := range to {
		to[i] = entry{winos.FileInfo{Name: fmt.Sprintf("file-%d", offset+int64(i))}}
	}
	return len(to), nil
}

// nested is the listing of a folder with a folder in it.
func nested() listing { return listing{entry{winos.FileInfo{Name: "folder", Dir: true}}} }
