package join

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/payload"
)

const streamName = "payload.tar.zst"

// deliver sends the missing files in one stream, and lets the host verify them. The host keeps files that have arrived,
// so an interrupted transfer continues later. The next phase may be disruptive, so deliver requests a slot for it.
func (j *Join) deliver(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	if session.Found == nil {
		return restart()
	}
	if missing := session.Found.Missing; len(missing) > 0 {
		selected, err := j.Payload.Select(missing)
		if err != nil {
			if journey.JoinRevision(&instance.Status) != "" { // the payload lacks a file of the host's revision
				instance.Status.DesiredRevision, instance.Status.Activity = "", nil
			}
			return journey.Fail(err)
		}
		if err = sendMissing(ctx, session, selected); err != nil {
			return journey.Fail(err)
		}
	}
	if !session.IsGranted {
		return journey.Outcome{Then: journey.TakeSlot}
	}
	return journey.Done()
}

// sendMissing sends the missing files.
func sendMissing(ctx context.Context, session *journey.Session, selected []payload.Blob) error {
	if err := send(ctx, session, selected); err != nil {
		return err
	}
	answer, err := journey.Call[contract.ReceiveAnswer](ctx, session.Conn, contract.VerbReceive,
		contract.ReceiveRequest{Stream: streamName, Blobs: session.Found.Missing})
	if err != nil {
		return err
	}
	if len(answer.Missing) > 0 {
		return contract.NewProblem(contract.ReasonPayloadIncomplete, "%d of %d pieces did not arrive",
			len(answer.Missing), len(selected))
	}
	session.Found.Missing = nil
	return nil
}

// send packs the payload during the transfer, so neither memory nor disk contains the whole stream.
func send(ctx context.Context, session *journey.Session, blobs []payload.Blob) error {
	r, pipe := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := payload.Pack(pipe, blobs)
		packed <- err
		_ = pipe.CloseWithError(err) // always returns nil
	}()
	_, err := session.Conn.Send(ctx, streamName, r)
	_ = r.Close() // stops the packing, because nothing reads its output; always returns nil
	if packing := <-packed; err == nil && packing != nil && !errors.Is(packing, io.ErrClosedPipe) {
		return fmt.Errorf("packing the payload: %w", packing)
	}
	if err != nil {
		return fmt.Errorf("sending the payload: %w", err)
	}
	return nil
}
