package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// streamName is the payload stream's name in the exchange directory.
const streamName = "payload.tar.zst"

// deliver sends what the host lacks in one stream, and has it verified there. What arrived stays,
// so a broken transfer resumes. Then it makes what the next phase hands to the host.
func (w *Walker) deliver(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) Outcome {
	if visit.found == nil {
		return restart()
	}
	if len(visit.found.Missing) == 0 {
		return w.credential(ctx, instance, visit)
	}
	selected, err := w.Payload.Select(visit.found.Missing)
	if err != nil {
		if joinsAt(&instance.Status) != "" { // the host has lost what it held, and nobody else has it
			instance.Status.HeldRevision, instance.Status.DesiredRevision, instance.Status.Update = "", "", nil
		}
		return Fail(err)
	}
	if err = send(ctx, visit, selected); err != nil {
		return Fail(err)
	}
	request := contract.ReceiveRequest{Stream: streamName, Blobs: visit.found.Missing}
	answer, err := call[contract.ReceiveAnswer](ctx, visit.conn, contract.VerbReceive, request)
	if err != nil {
		return Fail(err)
	}
	if len(answer.Missing) > 0 {
		return Fail(contract.NewProblem(contract.ReasonPayloadIncomplete, "%d of %d pieces did not arrive",
			len(answer.Missing), len(selected)))
	}
	visit.found.Missing = nil
	return w.credential(ctx, instance, visit)
}

// send packs while it sends: nothing is kept in memory or on disk.
func send(ctx context.Context, visit *Visit, blobs []payload.Blob) error {
	r, pipe := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := payload.Pack(ctx, pipe, blobs)
		packed <- err
		_ = pipe.CloseWithError(err) // always nil
	}()
	_, err := visit.conn.Send(ctx, streamName, r)
	_ = r.Close() // ends a packing that nobody reads any more; always nil
	if packing := <-packed; err == nil && packing != nil && !errors.Is(packing, io.ErrClosedPipe) {
		return fmt.Errorf("packing the payload: %w", packing)
	}
	if err != nil {
		return fmt.Errorf("sending the payload: %w", err)
	}
	return nil
}
