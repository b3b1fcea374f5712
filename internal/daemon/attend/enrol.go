package attend

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
)

// certificateLifetime is the lifetime that the host requests for its certificate.
const certificateLifetime = 14 * 24 * time.Hour

// The pause between attempts to get a certificate grows from firstRetry to longestRetry. The operator approves most
// requests within firstRetry.
const (
	firstRetry   = time.Second
	longestRetry = time.Minute
)

// options returns the options for a connection to the API server, with the token or else the host's certificate.
func (s *service) options(token string) apiclient.Options {
	return apiclient.Options{Files: s.files, Identity: s.identity(s.record.UID), Token: token,
		Server:    apiclient.Server{URL: s.record.APIServer, CA: []byte(s.record.CA)},
		CABundle:  contract.PathBootstrapCA, // the daemon updates this file
		UserAgent: contract.ServiceAttend + "/" + s.Version}
}

// enrol gets a certificate with the token, and deletes the token. It retries until it succeeds or ctx ends. If the
// host can't get a certificate at all, enrol returns the reason in `why`.
func (s *service) enrol(ctx context.Context) (why string, err error) {
	var refusal since
	for pause := min(firstRetry, s.Pace.Retry); ctx.Err() == nil; pause = min(2*pause, longestRetry) {
		if _, err = s.identity(s.record.UID).LoadCertificate(); err == nil {
			if s.record.Token == "" {
				return "", nil
			}
			s.record.Token = ""
			return "", s.write(contract.HostStateFile, s.record)
		}
		if s.record.Token == "" {
			return "This host has neither a certificate nor a token.", nil
		}
		if err = s.obtain(ctx); err == nil {
			continue
		}
		if ctx.Err() != nil {
			return "", nil //nolint:nilerr // the service was stopped
		}
		text, failed := explain(err)
		s.show(ctx, progress{Text: text, Failed: failed})
		if p, is := contract.AsProblem(err); is && p.Reason == contract.ReasonCertificateDenied ||
			refusal.longer(s.Clock.Now(), isRefusal(err), s.Pace.Refused) {
			return text, nil
		}
		loop.Wait(ctx, s.Clock, nil, loop.Jitter(pause))
	}
	return "", nil
}

func (s *service) obtain(ctx context.Context) error {
	addresses, err := s.identify(ctx)
	if err != nil {
		return err
	}
	options := s.options(s.record.Token)
	options.Identity.Addresses = addresses
	if err = apiclient.Reach(ctx, options.Server, s.Host.System.Now); err != nil {
		return err
	}
	client, err := apiclient.Connect(options)
	if err != nil {
		return err
	}
	defer client.Close()
	renewer := apiclient.Renewer{Identity: options.Identity, Client: client.Client, Clock: s.Clock}
	return renewer.Obtain(ctx, certificateLifetime)
}

// identify sets the record's UID to the digest of the host's key. It returns the addresses that the operator uses to
// find the host's Machine. Without a Machine, identify does nothing, because the join command contains the UID of the
// WindowsInstance.
func (s *service) identify(ctx context.Context) (addresses []net.IP, err error) {
	if !s.record.ByKey {
		return nil, nil
	}
	key, err := s.identity("").PendingKey()
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encoding the public key: %w", err)
	}
	address, err := s.Host.Network.NodeIP(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the host's address: %w", err)
	}
	s.record.UID = contract.Digest(der)
	return []net.IP{address.AsSlice()}, s.write(contract.HostStateFile, s.record)
}

// explain returns why the host can't join, as text for the administrator. failed is true if waiting doesn't help.
func explain(err error) (text string, failed bool) {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	p, is := contract.AsProblem(err)
	switch {
	case is && p.Reason == contract.ReasonCertificatePending:
		return "Requesting a certificate, which the operator approves within a minute: " + p.Detail + ".", false
	case is && p.Reason == contract.ReasonCertificateDenied:
		return "The operator has denied this host's certificate: " + p.Detail + ". Create a new command for the " +
			"WindowsInstance and run it here. If this is the host of a Machine, delete the Machine.", true
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("By this host's clock, the API server's certificate is not valid yet or has expired (%v). "+
			"Set the clock, for example with w32tm /resync.", invalid), true
	case errors.As(err, &unknown), errors.As(err, &name), errors.As(err, &invalid):
		return fmt.Sprintf("The server at the API server's address does not have a certificate of the cluster's CA "+
			"(%v). If a proxy on the way inspects TLS, exempt the API server from it. If the cluster has a new CA, "+
			"create a new command and run it here.", err), true
	case apierrors.IsUnauthorized(err):
		return "The API server does not accept this host's token or certificate. It may have expired or been " +
			"replaced. Create a new command for the WindowsInstance and run it here.", true
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("The API server doesn't permit this host to join (%v). The host tries again.", err), false
	}
	return fmt.Sprintf("The API server can't be reached: %v. The host tries again.", err), false
}
