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

// partSuffix ends the temporary names of files on their way.
const partSuffix = ".part"

// partOf is the temporary name of a file on its way. An uploaded daemon's is no program yet.
func partOf(name string) string {
	if isUploaded(name) {
		name = daemonPart + strings.TrimSuffix(strings.TrimPrefix(name, "wicd-"), ".exe")
	}
	return name + partSuffix
}

// daemonPart begins the temporary name of a daemon that is being uploaded.
const daemonPart = "daemon-"

// posixRename is the extension by which SFTP replaces a file in one step.
const posixRename = "posix-rename@openssh.com"

// session gives the SFTP session, opening it the first time, with the RPC directory in order.
//
// Opening also takes away what earlier connections left when they broke: requests, which may hold
// credentials, answers, and parts of daemons. A host has one owner at a time, so nothing of that
// can be in use.
//
// Every step over SFTP begins here, and with it the budget of bytes that the host may send.
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
		return c.files, nil // what lies there is this connection's
	}
	if err := c.during(ctx, "preparing the RPC directory", func() error { return tidy(c.files) }); err != nil {
		return nil, err
	}
	c.tidied = true
	return c.files, nil
}

// sessionRetry is the pause after which a server that allows one session is asked for another: the
// one before ends when the server has noticed that its program did.
const sessionRetry = 50 * time.Millisecond

// command opens a session for a command. A server with MaxSessions 1 refuses it while there is SFTP.
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

// whileRefused repeats the opening of a session, on a server that allows one, until the one before
// has ended there.
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

// endFiles ends the SFTP session; the next step over SFTP opens another.
func (c *conn) endFiles() {
	if c.files != nil {
		_ = c.files.Close()
		c.files = nil
	}
}

// packetSize is the content of one SFTP request in bytes.
const packetSize = 8 << 10

// open starts the SFTP session.
func (c *conn) open(ctx context.Context) error {
	var refused bool
	err := c.during(ctx, "starting SFTP", func() error {
		// SSH keeps buffers of the largest packet, as long as the connection is there, and hundreds may be. 64
		// writes of 8 KiB on their way are 25 MB/s over a line with a round trip of 20 ms.
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

// tidy makes the RPC directory, or empties it of what broken connections left.
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
	// maxEntries is how many files a step looks at. The RPC directory holds less than ten.
	maxEntries = 1000
	// maxDepth is how deep folders in the RPC directory are followed. It holds none of ours.
	maxDepth = 4
)

// list lists a directory of a few files. What its listing takes in memory is bounded by the bytes
// that a step may receive.
func list(files *sftp.Client, directory string) ([]os.FileInfo, error) {
	entries, err := files.ReadDir(directory)
	if err == nil && len(entries) > maxEntries {
		err = contract.NewProblem(contract.ReasonOutputTooLarge, "listing the RPC directory: more than %d entries",
			maxEntries)
	}
	return entries, err
}

// removeAll removes a directory with what is in it, as deep as maxDepth. left is how many entries
// may still be looked at, and is counted down.
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

// isLeftover says whether a file is a request or an answer of some call, whole or in part, or part
// of a daemon that was uploaded by an older operator. Other parts are kept: they are resumed.
func isLeftover(name string) bool {
	whole := strings.TrimSuffix(name, partSuffix)
	return strings.HasSuffix(whole, contract.RequestName("")) || strings.HasSuffix(whole, contract.AnswerName("")) ||
		whole != name && isUploaded(whole)
}

// isUploaded says whether a file is an uploaded daemon of any version.
func isUploaded(name string) bool {
	return strings.HasPrefix(name, "wicd-") && strings.HasSuffix(name, ".exe")
}

// inRPCDir is the path of a file in the RPC directory, relative to the user's home, where
// SFTP starts.
func inRPCDir(name string) string { return contract.RPCDir + "/" + name }

// isPlainName says whether a name stays in the RPC directory and means the same to SFTP,
// Windows and any shell.
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

// remove deletes a file of the RPC directory. One that is not there is fine.
func remove(files *sftp.Client, name string) error {
	err := files.Remove(inRPCDir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// put leaves content under a name: written to a temporary name with many writes on their way at
// once, and renamed when all of it is there. content's own errors come back as they are.
func put(files *sftp.Client, name string, content io.Reader, from start) (sent int64, err error) {
	part := inRPCDir(partOf(name))
	f, at, err := from(files, part, content)
	if err != nil {
		return 0, err
	}
	if _, err = f.Seek(at, io.SeekStart); err == nil {
		// The number 0 stands for as many writes at once as the session allows; ReadFrom would ask
		// a stream for its size and, not learning it, write one packet per round trip.
		sent, err = f.ReadFromWithConcurrency(content, 0)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = replace(files, part, inRPCDir(name))
	}
	if err != nil {
		// Over a connection that broke this does nothing, and the part stays to be resumed.
		return sent, errors.Join(err, files.Remove(part))
	}
	return sent, nil
}

// start opens the temporary file of a transfer, and says at which offset content goes on.
type start func(files *sftp.Client, part string, content io.Reader) (f *sftp.File, at int64, err error)

// afresh begins a transfer with an empty file.
func afresh(files *sftp.Client, part string, _ io.Reader) (*sftp.File, int64, error) {
	f, err := files.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, 0, fmt.Errorf("creating the file: %w", err)
	}
	return f, 0, nil
}

// resumeMargin is how much of the end of a broken transfer is sent again, in bytes: writes that
// were on their way together may have arrived in any order.
const resumeMargin = 4 << 20

// resumed goes on where a broken transfer ended, for content that the receiver verifies: should it
// differ from what was sent before, or the file have a hole, that is found there.
func resumed(files *sftp.Client, part string, content io.Reader) (*sftp.File, int64, error) {
	info, err := files.Stat(part)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() <= resumeMargin {
		return afresh(files, part, content)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("looking for a broken transfer: %w", err)
	}
	at := info.Size() - resumeMargin
	f, err := files.OpenFile(part, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return nil, 0, fmt.Errorf("opening a broken transfer: %w", err)
	}
	skipped, err := io.CopyN(io.Discard, content, at)
	if errors.Is(err, io.EOF) {
		// The content of today is shorter. What is there beyond its end must go, and nothing is
		// left to send.
		at, err = skipped, f.Truncate(skipped)
	} else if err == nil {
		err = f.Truncate(at)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("going on with a broken transfer: %w", err), f.Close())
	}
	return f, at, nil
}

// replace renames a file over another one that may exist.
func replace(files *sftp.Client, from, to string) error {
	if _, atomic := files.HasExtension(posixRename); atomic {
		return files.PosixRename(from, to)
	}
	if err := files.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return files.Rename(from, to)
}

// fetch reads a file of at most limit bytes.
func fetch(files *sftp.Client, name string, limit int64) (content []byte, err error) {
	f, err := files.Open(inRPCDir(name))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var buffer bytes.Buffer
	// The limited reader hides that a file can copy itself at once, and however much it says it
	// has.
	if _, err = io.Copy(&buffer, io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	}
	if int64(buffer.Len()) > limit {
		return nil, errAnswerTooLong
	}
	return buffer.Bytes(), nil
}
