package sshhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/pkg/sftp"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
)

// Upload implements host.Conn. It removes daemons of other versions.
func (c *conn) Upload(ctx context.Context, daemon host.Blob) (sent int64, err error) {
	name := contract.UploadedName(daemon.Digest)
	if !isPlainName(name) {
		return 0, fmt.Errorf("uploading the daemon: %.64q is not a digest", daemon.Digest)
	}
	files, err := c.session(ctx)
	if err != nil {
		return 0, fmt.Errorf("uploading the daemon: %w", err)
	}
	var present bool
	err = c.briefly(ctx, "looking for an uploaded daemon", func() error {
		present, err = findUploaded(files, name, daemon.Size)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("uploading the daemon: %w", err)
	}
	if !present {
		content, err := daemon.Open()
		if err != nil {
			return 0, fmt.Errorf("opening the daemon's binary: %w", err)
		}
		if sent, err = c.stream(ctx, "uploading the daemon", name, content); err != nil {
			return sent, err
		}
		c.patched = sent < daemon.Size
	}
	c.uploaded = name
	return sent, nil
}

// doubt deletes a daemon that seems damaged: the preflight reports a wrong digest, or several connections uploaded
// parts of the daemon and it doesn't start. The next Upload then sends the whole daemon again.
func (c *conn) doubt(ctx context.Context, answer []byte, failed error) {
	p, isProblem := contract.AsProblem(failed)
	broken := c.patched && isProblem && p.Reason == contract.ReasonDaemonCallFailed
	if found, err := host.DecodeAnswer[contract.PreflightAnswer](answer); err == nil {
		broken = slices.ContainsFunc(found.Result.Problems,
			func(p contract.Problem) bool { return p.Reason == contract.ReasonPayloadCorrupt })
	}
	if !broken || c.Err() != nil {
		return
	}
	logr.FromContextOrDiscard(ctx).Info("the uploaded daemon is damaged and is sent again", "address", c.address)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endingGrace)
	defer cancel()
	// If the file can't be deleted now, the next call finds it damaged again.
	if files, err := c.session(ctx); err == nil {
		_ = c.during(ctx, "removing a damaged daemon", func() error { return remove(files, c.uploaded) })
	}
	c.uploaded = ""
}

// findUploaded reports whether a daemon of this name and size exists. It deletes other daemons, including partial ones.
// It ignores a daemon that can't be deleted because it is running.
func findUploaded(files *sftp.Client, name string, size int64) (present bool, err error) {
	entries, err := list(files, contract.RPCDir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		switch {
		case e.Name() == name:
			present = e.Mode().IsRegular() && e.Size() == size
		case isUploaded(e.Name()), strings.HasPrefix(e.Name(), daemonPart) && e.Name() != partOf(name):
			if err = files.Remove(inRPCDir(e.Name())); isBreak(err) {
				return false, err
			}
		}
	}
	return present, nil
}

func (c *conn) RemoveUpload(ctx context.Context) error {
	files, err := c.session(ctx)
	if err != nil {
		return fmt.Errorf("removing the RPC directory: %w", err)
	}
	err = c.briefly(ctx, "removing the RPC directory", func() error {
		left := maxEntries
		err := removeAll(files, contract.RPCDir, maxDepth, &left)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err == nil {
		c.uploaded, c.tidied = "", false
	}
	return err
}

// Send implements host.Conn. If an earlier connection broke while it sent a file with this name, Send sends only the
// rest. So each Send with the same name should send the same bytes, and the receiver must verify the file.
func (c *conn) Send(ctx context.Context, name string, content io.Reader) (sent int64, err error) {
	doing := "sending " + name
	if !isPlainName(name) {
		return 0, fmt.Errorf("sending %q: not a name for the RPC directory", name)
	}
	return c.stream(ctx, doing, name, content)
}

// stream writes content to a file of the RPC directory.
//
// A pipe connects content and SFTP, so that stream ends with the connection, even while content provides no data. If
// content is a Closer, stream closes it at the end, which stops the producer of the content. If the host is slower than
// the minimum rate, stream closes the connection.
func (c *conn) stream(ctx context.Context, doing, name string, content io.Reader) (sent int64, err error) {
	reader, writer := io.Pipe()
	feeding := make(chan struct{})
	go func() {
		defer close(feeding)
		_, err := io.Copy(writer, content)
		if err != nil {
			err = &contentError{err}
		}
		_ = writer.CloseWithError(err)
	}()
	defer func() {
		_ = reader.Close()
		if closer, can := content.(io.Closer); can {
			err = errors.Join(err, closer.Close())
			<-feeding
		}
	}()
	files, err := c.session(ctx)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	finished := make(chan struct{})
	measured := newPace(reader, c.options.Clock, func() { c.lose(errSlow) })
	defer measured.timer.Stop()
	c.start(func() {
		select {
		case <-c.gone:
		case <-finished:
		case <-measured.timer.C():
			measured.late()
		}
		_ = reader.Close()
	})
	defer close(finished)
	var failed *contentError
	err = c.during(ctx, doing, func() error {
		var err error
		if sent, err = put(files, name, measured); errors.As(err, &failed) {
			return nil // the content failed, not the connection
		}
		return err
	})
	if err == nil && failed != nil {
		err = fmt.Errorf("%s: %w", doing, failed)
	}
	return sent, err
}

// contentError is an error of the content, not of the connection.
type contentError struct{ err error }

func (e *contentError) Error() string { return "reading the content: " + e.err.Error() }

func (e *contentError) Unwrap() error { return e.err }
