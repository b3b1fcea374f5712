package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/response"
)

// MetadataAddress returns the address of the metadata service, which is the same in every cloud.
func MetadataAddress() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 169, 254}) }

// The metadata service is local and answers in milliseconds. The answer is a token, or a name of up to 253 characters.
const (
	metadataTimeout = 3 * time.Second
	maxAnswer       = 1 << 10
	maxLabel        = 63
)

// Metadata queries the metadata service of one machine.
type Metadata struct{ client *http.Client }

// NewMetadata returns the metadata service of a machine.
func NewMetadata(network winos.Network) *Metadata {
	port := netip.AddrPortFrom(MetadataAddress(), 80)
	return &Metadata{client: &http.Client{
		Timeout: metadataTimeout,
		Transport: &http.Transport{
			// Every connection goes to the metadata service. No proxy is used, because Proxy is nil.
			DialContext: func(ctx context.Context, _, _ string) (net.Conn,
				error) {
				return network.Dial(ctx, port)
			},
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: response.MaxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// AWSHostname returns the machine's private DNS name in lower case, from version 2 of the metadata service. If there
// are several names, it returns the first. Its errors are *contract.Problem with ReasonMetadataUnavailable or
// ReasonHostnameInvalid. Source:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html.
func (s *Metadata) AWSHostname(ctx context.Context) (string, error) {
	token, err := s.ask(ctx, http.MethodPut, "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60")
	if err != nil {
		return "", err
	}
	if token.text == "" || strings.ContainsFunc(token.text, func(r rune) bool { return r <= ' ' || '~' < r }) {
		return "", contract.NewProblem(contract.ReasonMetadataUnavailable,
			"the metadata service gives a token that is none")
	}
	name, err := s.ask(ctx, http.MethodGet, "/latest/meta-data/local-hostname", "X-aws-ec2-metadata-token", token.text)
	if err != nil {
		return "", err
	}
	// If the network's DHCP options have several domains, the answer has a name in each domain.
	first, _, _ := strings.Cut(strings.TrimSpace(name.text), " ")
	return checked(first)
}

// GCPHostname returns the name that the cloud gave the machine, in lower case. If the name has more than 63 characters,
// GCPHostname cuts it at its first dot. If it is still too long, GCPHostname cuts it after 63 characters. Its errors
// are *contract.Problem with ReasonMetadataUnavailable or ReasonHostnameInvalid. Source:
// https://cloud.google.com/compute/docs/metadata/querying-metadata.
func (s *Metadata) GCPHostname(ctx context.Context) (string, error) {
	const flavor = "Metadata-Flavor"
	answer, err := s.ask(ctx, http.MethodGet, "/computeMetadata/v1/instance/hostname", flavor, "Google")
	if err != nil {
		return "", err
	}
	if answer.header.Get(flavor) != "Google" {
		return "", contract.NewProblem(contract.ReasonMetadataUnavailable,
			"what answers in place of the metadata service is not Google's")
	}
	name := strings.TrimSpace(answer.text)
	if len(name) > maxLabel {
		name, _, _ = strings.Cut(name, ".")
	}
	if len(name) > maxLabel {
		name = strings.TrimRight(name[:maxLabel], "-")
	}
	return checked(name)
}

// `checked` returns the name in lower case. It refuses an invalid name, because names get into command lines.
func checked(name string) (string, error) {
	name = strings.ToLower(name)
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return "", contract.NewProblem(contract.ReasonHostnameInvalid,
			"the metadata service calls the machine %.80q: %s", name, strings.Join(wrong, "; "))
	}
	return name, nil
}

type answer struct {
	text   string
	header http.Header
}

func (s *Metadata) ask(ctx context.Context, method, path, header, value string) (answer, error) {
	fail := func(err error) (answer, error) {
		// Unwrap the error of the HTTP client, because its text would repeat the path. The error never contains the
		// header's value.
		var inner interface{ Unwrap() error }
		if errors.As(err, &inner) {
			err = inner.Unwrap()
		}
		return answer{}, contract.NewProblem(contract.ReasonMetadataUnavailable,
			"asking the metadata service for %s: %v", path, err)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+MetadataAddress().String()+path, http.NoBody)
	if err != nil {
		return fail(err)
	}
	request.Header.Set(header, value)
	response, err := s.client.Do(request)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fail(err)
	case response.StatusCode != http.StatusOK:
		return fail(fmt.Errorf("it answers with status %d", response.StatusCode))
	case len(body) > maxAnswer:
		return fail(fmt.Errorf("its answer has more than %d bytes", maxAnswer))
	}
	return answer{text: string(body), header: response.Header}, nil
}
