package attend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
)

const certificateLifetime = 14 * 24 * time.Hour

// The pause between attempts to get a certificate grows from firstRetry to longestRetry. The operator approves most
// requests within firstRetry.
const (
	firstRetry   = time.Second
	longestRetry = time.Minute
)

// options returns options that authenticate with the token or, if the token is empty, with the host's certificate.
func (p rpcDir) options(a contract.Attendance, version string) apiclient.Options {
	return apiclient.Options{Files: p.files, Identity: p.identity(a.UID), Token: a.Token,
		Server:    apiclient.Server{URL: a.APIServer, CA: []byte(a.CA)},
		CABundle:  contract.PathBootstrapCA, // the daemon updates this file
		UserAgent: contract.ServiceAttend + "/" + version}
}

// enrol gets the host's certificate with the token. If an attempt fails and waiting may help, enrol retries until
// `patience` is over. It writes to `out` what it waits for.
func (p rpcDir) enrol(ctx context.Context, o Options, want contract.Attendance, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no certificate came within %s", patience))
	defer cancel()
	var pause time.Duration
	for last := ""; ; {
		err := p.obtain(ctx, o, want)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w. Run the command again. %s", context.Cause(ctx), last)
		}
		text, failed := explain(err)
		if failed {
			return errors.New(text)
		}
		if text != last {
			printLine(out, "%s", text)
		}
		last, pause = text, loop.Grow(pause, 2, firstRetry, longestRetry)
		loop.Wait(ctx, o.Clock, nil, loop.Jitter(pause))
	}
}

// obtain makes one attempt to get the host's certificate. First, it stores the Attendance without the token. The key is
// stored as well, so a repeated command requests a certificate for the same key.
func (p rpcDir) obtain(ctx context.Context, o Options, want contract.Attendance) (err error) {
	var addresses []net.IP
	if want.UID == "" {
		if want.UID, addresses, err = p.identify(ctx, o); err != nil {
			return err
		}
	}
	options := p.options(want, o.Version)
	options.Identity.Addresses = addresses
	want.Token = ""
	if err = p.write(contract.HostStateFile, want); err != nil {
		return err
	}
	if err = apiclient.Reach(ctx, options.Server, o.Host.System.Now); err != nil {
		return err
	}
	client, err := apiclient.Connect(options)
	if err != nil {
		return err
	}
	defer client.Close()
	renewer := apiclient.Renewer{Identity: options.Identity, Client: client.Client, Clock: o.Clock}
	return renewer.Obtain(ctx, certificateLifetime)
}

// identify returns the ID and the address of a Machine's host. The ID is the digest of the host's key. The operator
// finds the Machine by the address. The user data is the same for all Machines, so it contains no ID.
func (p rpcDir) identify(ctx context.Context, o Options) (uid string, addresses []net.IP, err error) {
	key, err := p.identity("").PendingKey()
	if err != nil {
		return "", nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", nil, fmt.Errorf("encoding the public key: %w", err)
	}
	address, err := o.Host.Network.NodeIP(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("reading the host's address: %w", err)
	}
	return contract.Digest(der), []net.IP{address.AsSlice()}, nil
}

// explain returns why the host can't join, as text for the administrator. If waiting doesn't help, `failed` is true.
func explain(err error) (text string, failed bool) {
	var invalid x509.CertificateInvalidError
	var untrusted *tls.CertificateVerificationError
	p, is := contract.AsProblem(err)
	switch {
	case is && p.Reason == contract.ReasonCertificatePending:
		return "Requesting a certificate, which the operator approves within a minute: " + p.Detail + ".", false
	case is && p.Reason == contract.ReasonCertificateDenied, apierrors.IsUnauthorized(err):
		return fmt.Sprintf("The cluster does not accept this host's token, which may have been used, expired or been "+
			"replaced (%v). Create a new command for the WindowsInstance and run it here. If this is the host of a "+
			"Machine, delete the Machine.", err), true
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("By this host's clock, the API server's certificate is not valid yet or has expired (%v). "+
			"Set the clock, for example with w32tm /resync.", invalid), true
	case errors.As(err, &untrusted):
		return fmt.Sprintf("The server at the API server's address does not have a certificate of the cluster's CA "+
			"(%v). If a proxy on the way inspects TLS, exempt the API server from it. If the cluster has a new CA, "+
			"create a new command and run it here.", err), true
	}
	return fmt.Sprintf("The API server can't be reached, or refuses the request: %v. The host tries again.", err), false
}
