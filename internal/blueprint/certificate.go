package blueprint

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	certificateBlock = "CERTIFICATE"
	certificateBegin = "-----BEGIN " + certificateBlock + "-----"
)

// certificates returns the CAs of a bundle in PEM, sorted, and without comments or duplicates. It reports all flaws of
// a bundle in one problem, because a bundle may have 150 certificates.
//
// Expired certificates are kept: they do no harm, and Linux nodes keep them as well. Besides, if the content depended
// on the clock, a new revision could appear without any change of the input. A certificate that is neither a CA nor
// self-signed can't be a trust anchor, so it is skipped.
func certificates(b Bundle, now time.Time) (all []string, rejected []*contract.Problem) {
	var flaws []string
	complain := func(n int, format string, args ...any) {
		flaws = append(flaws, fmt.Sprintf("certificate %d ", n)+fmt.Sprintf(format, args...))
	}
	n, whole := 0, 0
	for block, rest := pem.Decode(b.PEM); block != nil; block, rest = pem.Decode(rest) {
		n++
		if block.Type != certificateBlock {
			complain(n, "is none, but of type %s", shorten(block.Type))
			continue
		}
		whole++
		c, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			complain(n, "can't be parsed")
			continue
		case !c.IsCA && !bytes.Equal(c.RawSubject, c.RawIssuer):
			complain(n, "(%s) is no CA", shorten(c.Subject.String()))
			continue
		case now.After(c.NotAfter) && !b.Injected:
			complain(n, "(%s) expired on %s; it is kept", shorten(c.Subject.String()),
				c.NotAfter.UTC().Format(time.DateOnly))
		}
		all = append(all, string(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: block.Bytes})))
	}
	if began := bytes.Count(b.PEM, []byte(certificateBegin)); began > whole {
		flaws = append(flaws, fmt.Sprintf("%d certificates are damaged", began-whole))
	}
	if n == 0 && len(flaws) == 0 && len(bytes.TrimSpace(b.PEM)) > 0 {
		flaws = append(flaws, "there is no certificate in PEM")
	}
	slices.Sort(all)
	if len(flaws) == 0 {
		return slices.Compact(all), nil
	}
	return slices.Compact(all), []*contract.Problem{
		contract.NewProblem(contract.ReasonCertificateRejected, "%s: %s", b.Source, contract.Few(flaws, named, "; ")),
	}
}

const named = 3

// shown is the maximum length, in bytes, of a user's text that a message repeats.
const shown = 80

// shorten cuts a user's text, and escapes special characters, so that a message can repeat the text.
func shorten(text string) string {
	if len(text) > shown {
		text = text[:shown] + "…"
	}
	return strings.Trim(fmt.Sprintf("%q", text), `"`)
}
