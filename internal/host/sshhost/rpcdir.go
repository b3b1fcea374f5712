package sshhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
)

const partSuffix = ".part"

// partOf returns the temporary name of a file during its transfer. The temporary name of a daemon doesn't end in .exe,
// so Windows doesn't run a partial daemon.
func partOf(name string) string {
	if isUploaded(name) {
		name = daemonPart + strings.TrimSuffix(strings.TrimPrefix(name, "wicd-"), ".exe")
	}
	return name + partSuffix
}

const daemonPart = "daemon-"

// posixRename is the SFTP extension that replaces a file atomically.
const posixRename = "posix-rename@openssh.com"

// session returns the SFTP session, and opens it if necessary. The first call also cleans the RPC directory.
//
// The cleanup deletes the files that broken connections left: answers, partial daemons, and requests, which may contain
// credentials. Only one worker of the operator works on a host at a time, so none of these files is in use.
//
// Every SFTP step calls session, which also resets the limit for bytes from the host.
func (c *conn) session(ctx context.Context) (*sftp.Client, error) {
	c.wire.beginStep()
	if c.files != nil && c.tidied {
		return c.files, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.SetupTimeout)
	defer cancel()
	if c.files == nil {
		if err := c.open(ctx); err != nil {
			return nil, err
		}
	}
	if c.tidied {
		return c.files, nil // this connection has cleaned the directory before
	}
	if err := c.during(ctx, "preparing the RPC directory", func() error { return tidy(c.files) }); err != nil {
		return nil, err
	}
	c.tidied = true
	return c.files, nil
}

// sessionRetry is the delay before another session is requested from a server that allows only one session. The server
// needs a moment to notice that the previous session's program has ended.
const sessionRetry = 50 * time.Millisecond

// command opens a session for a command. If a server with MaxSessions 1 refuses the session, command ends the SFTP
// session and tries again.
func (c *conn) command(ctx context.Context, doing string) (session *ssh.Session, err error) {
	err = c.during(ctx, doing, func() error {
		if c.single {
			c.endFiles()
		}
		return c.whileRefused(ctx, func() (err error) {
			if session, err = c.client.NewSession(); isRefused(err) && c.files != nil {
				c.single = true
				c.endFiles()
			}
			return err
		})
	})
	if isRefused(err) {
		err = contract.NewProblem(contract.ReasonNoSession, "%s on %s: the SSH server opens no session for it", doing,
			c.address)
	}
	return session, err
}

// whileRefused calls the function `open` to open a session. If a server that allows only one session refuses the
// session, whileRefused retries until the server has ended the previous session.
func (c *conn) whileRefused(ctx context.Context, open func() error) error {
	limit, cancel := context.WithTimeout(ctx, endingGrace)
	defer cancel()
	for {
		err := open()
		if !isRefused(err) || !c.single {
			return err
		}
		select {
		case <-limit.Done():
			return err
		case <-time.After(sessionRetry):
		}
	}
}

func isRefused(err error) bool {
	_, refused := errors.AsType[*ssh.OpenChannelError](err)
	return refused
}

// endFiles ends the SFTP session. The next SFTP step opens another session.
func (c *conn) endFiles() {
	if c.files != nil {
		_ = c.files.Close()
		c.files = nil
	}
}

const packetSize = 8 << 10

func (c *conn) open(ctx context.Context) error {
	var refused bool
	err := c.during(ctx, "starting SFTP", func() error {
		// Packets are small, because a connection keeps buffers for its largest packet, and there may be hundreds of
		// connections. 64 concurrent writes of 8 KiB reach 25 MB/s with a round trip of 20 ms.
		err := c.whileRefused(ctx, func() (err error) {
			c.files, err = sftp.NewClient(c.client, sftp.UseConcurrentWrites(true),
				sftp.MaxPacket(packetSize))
			return err
		})
		if err == nil {
			return nil
		}
		refused = ctx.Err() == nil && c.wire.broken() == nil && c.Err() == nil && !errors.Is(err, net.ErrClosed)
		if refused {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if refused {
		return contract.NewProblem(contract.ReasonNoSFTP, "starting SFTP on %s: the SSH server refuses it", c.address)
	}
	files := c.files
	c.start(func() { _ = files.Wait() })
	return nil
}

// tidy creates the RPC directory. If the directory exists, tidy deletes the files that broken connections left in it.
func tidy(files *sftp.Client) error {
	entries, err := list(files, contract.RPCDir)
	if errors.Is(err, fs.ErrNotExist) {
		return files.Mkdir(contract.RPCDir)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if isLeftover(e.Name()) {
			if err = remove(files, e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	// maxEntries limits how many files one step lists. The RPC directory contains fewer than ten.
	maxEntries = 1000
	// maxDepth limits the depth of folders in the RPC directory. The operator creates no folders there.
	maxDepth = 4
)

// list lists a small directory. The limit of bytes per step also limits the memory for the listing.
func list(files *sftp.Client, directory string) ([]os.FileInfo, error) {
	entries, err := files.ReadDir(directory)
	if err == nil && len(entries) > maxEntries {
		err = contract.NewProblem(contract.ReasonOutputTooLarge, "listing the RPC directory: more than %d entries",
			maxEntries)
	}
	return entries, err
}

// removeAll deletes a directory and its content down to maxDepth. `left` is the number of entries that removeAll may
// still list. removeAll decreases it.
func removeAll(files *sftp.Client, directory string, depth int, left *int) error {
	entries, err := list(files, directory)
	if err != nil {
		return err
	}
	if *left -= len(entries); depth == 0 || *left < 0 {
		return contract.NewProblem(contract.ReasonOutputTooLarge,
			"emptying the RPC directory: more than %d entries, or folders %d deep", maxEntries, maxDepth)
	}
	for _, e := range entries {
		path := directory + "/" + e.Name()
		if e.IsDir() {
			err = removeAll(files, path, depth-1, left)
		} else {
			err = files.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return files.RemoveDirectory(directory)
}

// isLeftover reports whether a file is a request or an answer, complete or partial, or a partial daemon of an older
// operator. Other partial files are not leftovers, because transfers resume them.
func isLeftover(name string) bool {
	whole := strings.TrimSuffix(name, partSuffix)
	return strings.HasSuffix(whole, contract.RequestName("")) || strings.HasSuffix(whole, contract.AnswerName("")) ||
		whole != name && isUploaded(whole)
}

func isUploaded(name string) bool {
	return strings.HasPrefix(name, "wicd-") && strings.HasSuffix(name, ".exe")
}

// inRPCDir returns the path of a file in the RPC directory, relative to the user's home, where SFTP starts.
func inRPCDir(name string) string { return contract.RPCDir + "/" + name }

// isPlainName reports whether a name means the same file of the RPC directory to SFTP, Windows and all shells.
func isPlainName(name string) bool {
	if name == "" || len(name) > 128 || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func remove(files *sftp.Client, name string) error {
	err := files.Remove(inRPCDir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// put writes content to a temporary file, with many concurrent writes, and renames the file when it is
// complete. If reading from content fails, put returns that error unchanged.
func put(files *sftp.Client, name string, content io.Reader) (sent int64, err error) {
	part := inRPCDir(partOf(name))
	f, at, err := open(files, part, content)
	if err != nil {
		return 0, err
	}
	if _, err = f.Seek(at, io.SeekStart); err == nil {
		// 0 means as many concurrent writes as the session allows. Don't use ReadFrom here: if it can't find out the
		// size of the content, it writes only one packet per round trip.
		sent, err = f.ReadFromWithConcurrency(content, 0)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = replace(files, part, inRPCDir(name))
	}
	if err != nil {
		// If the connection is broken, Remove has no effect, and the next transfer resumes the partial file.
		return sent, errors.Join(err, files.Remove(part))
	}
	return sent, nil
}

// resumeMargin is how many bytes of a broken transfer are sent again, because concurrent writes arrive in any order.
const resumeMargin = 4 << 20

// open opens the temporary file of a transfer. If an earlier transfer broke, open skips the part of content that the
// file already has, and returns the offset where the transfer continues. The receiver must verify the file, because the
// content may have changed since the earlier transfer, or the file may have a hole.
func open(files *sftp.Client, part string, content io.Reader) (f *sftp.File, at int64, err error) {
	flags := os.O_WRONLY | os.O_CREATE
	switch info, err := files.Stat(part); {
	case err == nil && info.Size() > resumeMargin:
		at = info.Size() - resumeMargin
	case err == nil || errors.Is(err, fs.ErrNotExist):
		flags |= os.O_TRUNC
	default:
		return nil, 0, fmt.Errorf("looking for a broken transfer: %w", err)
	}
	if f, err = files.OpenFile(part, flags); err != nil {
		return nil, 0, fmt.Errorf("opening the file: %w", err)
	}
	if at == 0 {
		return f, 0, nil
	}
	at, err = io.CopyN(io.Discard, content, at)
	if err == nil || errors.Is(err, io.EOF) { // the content may be shorter now
		err = f.Truncate(at)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("resuming a broken transfer: %w", err), f.Close())
	}
	return f, at, nil
}

func replace(files *sftp.Client, from, to string) error {
	if _, atomic := files.HasExtension(posixRename); atomic {
		return files.PosixRename(from, to)
	}
	if err := files.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return files.Rename(from, to)
}

var errAnswerTooLong = errors.New("the answer is longer than any answer of the daemon")

func fetch(files *sftp.Client, name string, limit int64) (content []byte, err error) {
	f, err := files.Open(inRPCDir(name))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var buffer bytes.Buffer
	// With a limited reader, io.Copy can't use the file's own WriteTo, which relies on the size that the host reports.
	if _, err = io.Copy(&buffer, io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	}
	if int64(buffer.Len()) > limit {
		return nil, errAnswerTooLong
	}
	return buffer.Bytes(), nil
}
