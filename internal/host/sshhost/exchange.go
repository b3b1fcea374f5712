package sshhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/pkg/sftp"

	"github.com/windows-nodes/wmco/internal/contract"
)

// partSuffix ends the temporary names of files on their way.
const partSuffix = ".part"

// posixRename is the extension by which SFTP replaces a file in one step.
const posixRename = "posix-rename@openssh.com"

// session gives the SFTP session, opening it the first time.
//
// Opening also takes away what earlier connections left when they broke: requests, which may hold credentials, answers, and parts of
// files. A host has one owner at a time, so nothing of that can be in use.
func (c *conn) session(ctx context.Context) (*sftp.Client, error) {
	if c.files != nil {
		return c.files, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.SetupTimeout)
	defer cancel()
	var files *sftp.Client
	var refused bool
	err := c.during(ctx, "starting SFTP", func() error {
		var err error
		// 64 writes of 32 KiB on their way fill the 2 MiB window that SSH servers give a channel; larger packets would gain nothing.
		files, err = sftp.NewClient(c.client, sftp.UseConcurrentWrites(true))
		if refused = err != nil && ctx.Err() == nil && c.wire.broken() == nil; refused {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if refused {
		return nil, contract.NewProblem(contract.ReasonNoSFTP, "starting SFTP on %s: the SSH server refuses it", c.address)
	}
	c.start(func() { _ = files.Wait() })
	c.files = files
	if err = c.during(ctx, "preparing the exchange directory", func() error { return tidy(files) }); err != nil {
		return nil, err
	}
	return files, nil
}

// tidy makes the exchange directory, or empties it of what broken connections left.
func tidy(files *sftp.Client) error {
	entries, err := files.ReadDir(contract.ExchangeDir)
	if errors.Is(err, fs.ErrNotExist) {
		return files.Mkdir(contract.ExchangeDir)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, partSuffix) || isExchange(name) {
			if err = remove(files, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// isExchange says whether a file is a request or an answer of some call.
func isExchange(name string) bool {
	return strings.HasSuffix(name, contract.RequestName("")) || strings.HasSuffix(name, contract.AnswerName(""))
}

// inExchange is the path of a file in the exchange directory, relative to the user's home, where SFTP starts.
func inExchange(name string) string { return contract.ExchangeDir + "/" + name }

// isPlainName says whether a name stays in the exchange directory and means the same to SFTP, Windows and any shell.
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

// remove deletes a file of the exchange directory. One that is not there is fine.
func remove(files *sftp.Client, name string) error {
	err := files.Remove(inExchange(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// put leaves content under a name: written to a temporary name with many writes on their way at once, and renamed when all of it is
// there. content's own errors come back as they are.
func put(files *sftp.Client, name string, content io.Reader) (sent int64, err error) {
	part := inExchange(name + partSuffix)
	f, err := files.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return 0, fmt.Errorf("creating the file: %w", err)
	}
	// The number 0 stands for as many writes at once as the session allows; ReadFrom would ask a stream for its size and, not learning
	// it, write one packet per round trip.
	sent, err = f.ReadFromWithConcurrency(content, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return sent, errors.Join(err, files.Remove(part))
	}
	if err = replace(files, part, inExchange(name)); err != nil {
		return sent, errors.Join(fmt.Errorf("renaming the file: %w", err), files.Remove(part))
	}
	return sent, nil
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
	f, err := files.Open(inExchange(name))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var buffer bytes.Buffer
	// The limited reader hides that a file can copy itself at once, and however much it says it has.
	if _, err = io.Copy(&buffer, io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	}
	if int64(buffer.Len()) > limit {
		return nil, errAnswerTooLong
	}
	return buffer.Bytes(), nil
}
