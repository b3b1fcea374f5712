package attend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// run runs the program of a call. The request and the answer are files in the RPC directory, as in a call over SSH.
func (s *service) run(ctx context.Context, call contract.Call) (content []byte, err error) {
	if !contract.IsCallID(call.ID) || !contract.IsCallID(string(call.Verb)) || !contract.IsDigest(call.Program.Digest) {
		return nil, errors.New("the call has no valid id, verb or program")
	}
	if err = s.bring(ctx, call.Program); err != nil {
		return nil, fmt.Errorf("fetching the program: %w", err)
	}
	request, answer := s.path(contract.RequestName(call.ID)), s.path(contract.AnswerName(call.ID))
	defer func() {
		failed := errors.Join(winos.RemoveClosed(s.files, request), winos.RemoveClosed(s.files, answer))
		if failed != nil {
			logr.FromContextOrDiscard(ctx).Info("a request or its answer stays on the host", "detail",
				failed.Error())
		}
	}()
	if err = errors.Join(s.files.Remove(answer), winos.WriteFile(s.files, request, bytes.NewReader(call.Request),
		winos.AccessAdministrators)); err != nil {
		return nil, fmt.Errorf("writing the request: %w", err)
	}
	code, err := s.Host.Programs.Run(ctx, s.path(contract.UploadedName(call.Program.Digest)), string(call.Verb),
		"--rpc", call.ID)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", call.Verb, err)
	}
	err = winos.UntilClosed(nil, func() (err error) { content, err = winos.ReadFile(s.files, answer); return err })
	if err == nil && !json.Valid(content) {
		err = errors.New("it is not valid JSON")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return content, nil
}

// bring fetches the program of a call if it is missing. After the fetch, it deletes all other programs.
func (s *service) bring(ctx context.Context, program contract.Blob) error {
	store := payload.NewStoreAt(s.files, func(digest string) string { return s.path(contract.UploadedName(digest)) })
	missing, err := store.Missing([]contract.Blob{program})
	if err != nil || len(missing) == 0 {
		return err
	}
	source, err := Source(s.files, s.dir)
	if err != nil {
		return err
	}
	if err = payload.Bring(ctx, s.Host.System, source, store, missing); err == nil {
		s.tidy(ctx, contract.UploadedName(program.Digest))
	}
	return err
}

// tidy deletes all programs in the RPC directory, except the given program and the program of this process.
func (s *service) tidy(ctx context.Context, program string) {
	entries, err := s.files.List(s.dir)
	s.logError(ctx, "the RPC directory can't be listed", err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name, "wicd-") && e.Name != program && !strings.EqualFold(s.path(e.Name), s.Self) {
			s.logError(ctx, "a file stays in the RPC directory", s.files.Remove(s.path(e.Name)))
		}
	}
}

// `leave` removes the attendance's files and service. The node is removed by a cleanup, or by the daemon after the
// operator has released the host. If `leave` is interrupted, the next start of the service continues it.
func (s *service) leave(ctx context.Context, why string) error {
	logr.FromContextOrDiscard(ctx).Info("the attendance ends", "why", why)
	for _, name := range []string{contract.HostStateFile, certificateFile, keyFile} {
		if err := s.files.Remove(s.path(name)); err != nil {
			return fmt.Errorf("removing %s: %w", name, err)
		}
	}
	if err := s.Host.Services.DeleteAtStop(ctx, contract.ServiceAttend); err != nil &&
		!errors.Is(err, winos.ErrNotFound) {
		return fmt.Errorf("removing service %s: %w", contract.ServiceAttend, err)
	}
	return nil
}

// Clear removes the RPC directory after the end of the attendance, unless a running cleanup needs it.
func Clear(ctx context.Context, o Options) error {
	if _, err := o.Host.Services.Get(ctx, contract.ServiceCleanup); !errors.Is(err, winos.ErrNotFound) {
		return err
	}
	return errors.Join(winos.RemoveInUse(o.Host, o.Self), o.Host.Files.RemoveAll(o.Dir))
}
