package resolver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/windows-nodes/wmco/internal/response"
)

// Reason is one word for why a source was skipped. Counters use it as a label, and messages contain it.
type Reason string

// Reasons to skip a source.
const (
	ReasonUnknownHost Reason = "UnknownHost" // the name does not resolve
	ReasonUnreachable Reason = "Unreachable" // refused, no route, broken off before an answer
	// The certificate is not signed by a trusted CA, has expired, or is for another name.
	ReasonUntrusted       Reason = "Untrusted"
	ReasonSlow            Reason = "Slow"            // no first byte in time
	ReasonDenied          Reason = "Denied"          // 401 or 403, of the registry or of its token server
	ReasonNotFound        Reason = "NotFound"        // 404
	ReasonTooManyRequests Reason = "TooManyRequests" // 429
	ReasonFailing         Reason = "Failing"         // another status than the expected one
	ReasonWrongContent    Reason = "WrongContent"    // the content differs from the digest, the size or the range
	ReasonBrokenOff       Reason = "BrokenOff"       // died, or got too slow, after the first bytes
	// It redirects to plain http, or to a registry that must never be contacted.
	ReasonForbidden Reason = "Forbidden"
)

// fault is why one attempt failed. Its text comes from this package only, because texts of clients and servers can
// contain signed addresses or tokens.
type fault struct {
	reason Reason
	detail string
	// passing is the status of a source that may answer soon; 0 otherwise.
	passing int
}

func (f *fault) Error() string {
	if f.detail == "" {
		return string(f.reason)
	}
	return string(f.reason) + " (" + f.detail + ")"
}

func faultf(reason Reason, format string, arguments ...any) *fault {
	return &fault{reason: reason, detail: fmt.Sprintf(format, arguments...)}
}

// refusal returns the fault of an unsuccessful status. It uses no text of the answer.
func refusal(status int) *fault {
	f := faultf(ReasonFailing, "status %d", status)
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		f.reason = ReasonDenied
	case http.StatusNotFound:
		f.reason = ReasonNotFound
	case http.StatusTooManyRequests:
		f.reason, f.passing = ReasonTooManyRequests, status
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		f.passing = status
	}
	return f
}

// errSlow is the cause of a context that ends because a source is too slow.
var errSlow = errors.New("no byte in time")

// faultOf returns the fault for an error of the HTTP client. ctx is the attempt's context. An error on the way to the
// proxy isn't a fault of the registry.
func faultOf(ctx context.Context, err error) *fault {
	var (
		own    *fault
		status *transport.Error
		way    *net.OpError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &way) && way.Op == "proxyconnect": // net/http's word
		return faultf(ReasonUnreachable, "the proxy: %s", faultOf(ctx, way.Err).detail)
	case errors.Is(context.Cause(ctx), errSlow):
		return faultf(ReasonSlow, "no answer in time")
	case errors.As(err, &status):
		return refusal(status.StatusCode)
	}
	if f := distrust(err); f != nil {
		return f
	}
	if strings.Contains(err.Error(), "server response headers exceeded") { // net/http has no type for it
		return faultf(ReasonFailing, "its answer has more than %d KiB of headers", response.MaxHeader>>10)
	}
	return silence(err)
}

// distrust returns the fault of a certificate, or nil.
func distrust(err error) *fault {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		wrong   x509.HostnameError
		cert    *tls.CertificateVerificationError
		record  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &unknown):
		return faultf(ReasonUntrusted, "certificate signed by unknown authority")
	case errors.As(err, &wrong):
		return faultf(ReasonUntrusted, "certificate is for another name")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return faultf(ReasonUntrusted, "certificate has expired or is not yet valid")
	case errors.As(err, &cert), errors.As(err, &invalid):
		return faultf(ReasonUntrusted, "certificate is not valid")
	// net/http has no type for it
	case errors.As(err, &record), strings.HasSuffix(err.Error(), "server gave HTTP response to HTTPS client"):
		return faultf(ReasonUntrusted, "it does not speak TLS")
	}
	return nil
}

// silence returns the fault of a host that gave no answer, or no valid HTTP response.
func silence(err error) *fault {
	var (
		dns       *net.DNSError
		timeout   net.Error
		number    syscall.Errno
		operation *net.OpError
	)
	switch {
	case errors.As(err, &dns):
		return faultf(ReasonUnknownHost, "name does not resolve")
	case errors.As(err, &timeout) && timeout.Timeout():
		return faultf(ReasonUnreachable, "no connection in time")
	case errors.As(err, &number):
		return faultf(ReasonUnreachable, "%s", number.Error())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &operation):
		return faultf(ReasonUnreachable, "connection broken off")
	}
	return faultf(ReasonFailing, "its answer can't be read")
}
