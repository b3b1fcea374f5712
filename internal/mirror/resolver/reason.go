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

// Reason says in one word why a source was skipped. Counters use it as a label, and messages contain it.
type Reason string

// Reasons to skip a source.
const (
	ReasonUnknownHost Reason = "UnknownHost" // the name does not resolve
	ReasonUnreachable Reason = "Unreachable" // connection refused, no route, or broken off before an answer
	// The certificate is not signed by a trusted CA, has expired, or is for another name.
	ReasonUntrusted       Reason = "Untrusted"
	ReasonSlow            Reason = "Slow"            // no first byte in time
	ReasonDenied          Reason = "Denied"          // 401 or 403, from the registry or its token server
	ReasonNotFound        Reason = "NotFound"        // 404
	ReasonTooManyRequests Reason = "TooManyRequests" // 429
	ReasonFailing         Reason = "Failing"         // any other unexpected status
	ReasonWrongContent    Reason = "WrongContent"    // the content doesn't match the digest, the size or the range
	ReasonBrokenOff       Reason = "BrokenOff"       // the connection broke or got too slow after the first bytes
	// The registry redirects to plain http, or to a registry that must never be contacted.
	ReasonForbidden Reason = "Forbidden"
)

// fault is the error of one attempt. It contains only text of this package. Error texts of HTTP clients and servers can
// contain signed addresses or tokens.
type fault struct {
	reason Reason
	detail string
	// `passing` is the status of the answer if a retry may succeed soon. Otherwise it is 0.
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

// refusal returns the fault for an unsuccessful status. It contains no text of the answer.
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

// faultOf returns the fault for an error of the HTTP client. If the proxy failed, the fault blames the proxy.
func faultOf(ctx context.Context, err error) *fault {
	var (
		own    *fault
		status *transport.Error
		way    *net.OpError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &way) && way.Op == "proxyconnect": // net/http uses this Op for its connection to a proxy
		return faultf(ReasonUnreachable, "the proxy: %s", faultOf(ctx, way.Err).detail)
	case errors.Is(context.Cause(ctx), errSlow):
		return faultf(ReasonSlow, "no answer in time")
	case errors.As(err, &status):
		return refusal(status.StatusCode)
	}
	if f := distrust(err); f != nil {
		return f
	}
	if strings.Contains(err.Error(), "server response headers exceeded") { // net/http has no type for this error
		return faultf(ReasonFailing, "its answer has more than %d KiB of headers", response.MaxHeader>>10)
	}
	return silence(err)
}

// distrust returns a fault if err means that the certificate is invalid or that the server has no TLS, or else nil.
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
	// net/http has no type for the error of a server that answers without TLS, so compare its text.
	case errors.As(err, &record), strings.HasSuffix(err.Error(), "server gave HTTP response to HTTPS client"):
		return faultf(ReasonUntrusted, "it does not speak TLS")
	}
	return nil
}

// silence returns the fault of a host that didn't answer, or whose answer isn't valid HTTP.
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
