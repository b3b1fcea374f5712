package payload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Bounds of the wait that a busy payload server may request.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 5 * time.Minute
)

// maxDigests limits the blobs of one request, so that its URL isn't too long.
const maxDigests = 64

// Server is a Source: the operator's payload server, at one or more HTTPS addresses.
type Server struct {
	// Client presents the daemon's certificate and trusts the payload server's certificate.
	Client *http.Client
	// URLs are the addresses, without a path. Open tries them in order.
	URLs []string
}

var _ Source = (*Server)(nil)

// Open requests the blobs from each address in turn until a server sends them. If no server does, Open returns the
// error of a busy server, or else the last error.
func (d *Server) Open(ctx context.Context, digests []string, offset int64) (io.ReadCloser, error) {
	err := errors.New("no payload server is known")
	var busy *Busy
	for _, base := range d.URLs {
		body, trouble := d.ask(ctx, base, digests, offset)
		if trouble == nil {
			return body, nil
		}
		// Prefer the error of a busy server: a retry there is more likely to succeed than at an unreachable server.
		if !errors.As(err, &busy) {
			err = trouble
		}
	}
	return nil, err
}

func (d *Server) ask(ctx context.Context, base string, digests []string, offset int64) (io.ReadCloser, error) {
	ctx, stop := context.WithCancel(ctx)
	at := strings.TrimRight(base, "/") + contract.PayloadServerPath + digests[0]
	if more := digests[1:min(len(digests), maxDigests)]; len(more) > 0 {
		at += "?" + contract.PayloadServerThen + "=" + strings.Join(more, ",")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		stop()
		return nil, fmt.Errorf("asking payload server %s: %w", base, err)
	}
	if offset > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	response, err := d.Client.Do(request)
	if err != nil {
		stop()
		return nil, fmt.Errorf("asking payload server %s: %w", base, err)
	}
	if err = check(response, offset); err != nil {
		err = errors.Join(err, response.Body.Close())
		stop()
		return nil, err
	}
	return &body{ReadCloser: response.Body, stop: stop, timer: time.AfterFunc(longestSilence, stop)}, nil
}

// longestSilence is how long a read may wait for more bytes. After that, the response is aborted.
const longestSilence = time.Minute

type body struct {
	io.ReadCloser
	stop  context.CancelFunc
	timer *time.Timer
}

func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(longestSilence)
	return b.ReadCloser.Read(p)
}

func (b *body) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.stop()
	return err
}

// check returns an error unless the response begins at the offset. If the server is busy, the error is a *Busy.
func check(response *http.Response, offset int64) error {
	switch response.StatusCode {
	case http.StatusOK:
		if offset == 0 {
			return nil
		}
		return errors.New("the payload server sends the whole blob instead of the rest")
	case http.StatusPartialContent:
		if offset > 0 && strings.HasPrefix(response.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", offset)) {
			return nil
		}
		return fmt.Errorf("the payload server sends range %.60q, but the request asks for offset %d",
			response.Header.Get("Content-Range"),
			offset)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if err != nil {
			seconds = 0
		}
		return &Busy{After: min(max(time.Duration(seconds)*time.Second, minRetryAfter), maxRetryAfter)}
	}
	return fmt.Errorf("the payload server answers %s", response.Status)
}
