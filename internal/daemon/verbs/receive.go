package verbs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/attend"
	nodepayload "github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/payload"
)

// Receive unpacks the payload stream into the store, and always deletes the stream. If there is no stream, because the
// host joins by itself, Receive fetches the blobs. The answer lists the stored and the missing blobs, even if Receive
// also returns a Problem.
func Receive(ctx context.Context, host winos.Host, home string,
	request contract.ReceiveRequest) (answer contract.ReceiveAnswer, err error) {
	if !legalName(request.Stream) {
		return answer, contract.NewProblem(contract.ReasonInternal, "%.40q can't name a stream", request.Stream)
	}
	path := RPCPath(home) + `\` + request.Stream
	defer func() { err = errors.Join(err, winos.RemoveClosed(host.Files, path)) }()
	return store(host.Files, request.Blobs, func(blobs *nodepayload.Store) error {
		stream, err := winos.OpenClosed(host.Files, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fetch(ctx, host, RPCPath(home), request.Blobs, blobs)
		case err != nil:
			return fmt.Errorf("opening the payload stream: %w", err)
		}
		if err = payload.Unpack(winos.Until(ctx, stream), request.Blobs, blobs.Put); err != nil {
			err = fmt.Errorf("unpacking the payload stream: %w", err)
		}
		return errors.Join(err, stream.Close())
	})
}

// fetch fetches blobs on a host that joins by itself.
func fetch(ctx context.Context, host winos.Host, rpc string, want []contract.Blob, blobs *nodepayload.Store) error {
	source, err := attend.Source(host.Files, rpc)
	if errors.Is(err, fs.ErrNotExist) {
		return contract.NewProblem(contract.ReasonPayloadIncomplete, "the payload stream is not there")
	}
	if err != nil {
		return err
	}
	return nodepayload.Bring(ctx, host.System, source, blobs, want)
}

// store calls `attempt`, which stores blobs. The answer lists which wanted blobs are stored or missing.
func store(files winos.Files, want []contract.Blob,
	attempt func(*nodepayload.Store) error) (answer contract.ReceiveAnswer, err error) {
	stateFile, err := state.Open(files)
	if err != nil {
		return answer, err
	}
	if err = state.Ensure(files, stateFile, contract.DirStore); err != nil {
		return answer, storeProblem(err)
	}
	blobs := nodepayload.NewStore(files)
	failure := attempt(blobs)
	if answer.Missing, err = blobs.Missing(want); err != nil {
		return answer, err
	}
	for _, b := range want {
		if !slices.Contains(answer.Missing, b) {
			answer.Stored = append(answer.Stored, b.Digest)
		}
	}
	if len(answer.Missing) == 0 {
		return answer, nil
	}
	if failure == nil {
		failure = contract.NewProblem(contract.ReasonPayloadIncomplete, "%d of %d blobs are missing",
			len(answer.Missing), len(want))
	}
	return answer, storeProblem(failure)
}

// storeProblem converts an error of the store to a Problem, like apply.FileProblem. But it returns PayloadIncomplete
// instead of FileFailed: FileFailed would count as a failure of a revision, and a file in the store doesn't belong to a
// revision yet.
func storeProblem(err error) *contract.Problem {
	p := apply.FileProblem(err)
	if p.Reason == contract.ReasonFileFailed {
		return contract.NewProblem(contract.ReasonPayloadIncomplete, "%s", p.Detail)
	}
	return p
}

// legalName reports whether a file with this name is always inside the RPC directory.
func legalName(name string) bool {
	return name != "" && !strings.Contains(name, "..") &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") == "" && name[0] != '.'
}
