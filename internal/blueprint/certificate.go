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

// certificates are the CAs of a bundle in PEM, each in one form without comments, once,
// sorted. What is left out or of no use is named, at most one problem for each bundle: a bundle has
// about 150 certificates, and nobody reads as many lines.
//
// An expired one is kept: it harms nobody, on Linux nodes it is kept too, and content that changes
// with the clock would be a new revision without a cause. One that signs nothing and did not sign
// itself is no anchor of trust, and left out.
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
		contract.NewProblem(contract.ReasonCertificateRejected, "%s: %s", b.Source, some(flaws)),
	}
}

// named is how many flaws of one thing a message lists.
const named = 3

func some(flaws []string) string {
	if len(flaws) <= named {
		return strings.Join(flaws, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(flaws[:named], "; "), len(flaws)-named)
}

// shown is how much of foreign text a message repeats, in bytes.
const shown = 80

// shorten makes foreign text fit to be shown.
func shorten(text string) string {
	if len(text) > shown {
		text = text[:shown] + "…"
	}
	return strings.Trim(fmt.Sprintf("%q", text), `"`)
}
