package contract

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of what a host says of itself. They are far above what an honest one says, and those of
// the API are not below them.
const (
	MaxName    = 253 // of a host or Node, in bytes
	MaxID      = 128 // of a machine or a boot
	MaxText    = 256 // the name of a product, or what is to be prepared
	maxEntries = 8192
	maxRequest = 16 << 10
)

// Check says whether an honest daemon may have given the answer. What the rest of the operator
// writes down, compares or puts into names is safe for that afterwards; whether a name may be a
// Node's is decided where the Node's name is taken from it.
func (a PreflightAnswer) Check() error {
	f := a.Facts
	for _, err := range []error{
		checkHostName("hostname", f.Hostname), checkHostName("nodeName", f.NodeName),
		checkText("machineID", f.MachineID, MaxID), checkText("bootID", f.BootID, MaxID),
		checkText("productName", f.ProductName, MaxText), checkBlobs("missing", a.Missing),
		checkCount("problems", len(a.Problems)), checkTexts("needsPrepare", a.NeedsPrepare),
	} {
		if err != nil {
			return err
		}
	}
	if f.NodeIP != "" {
		if _, err := netip.ParseAddr(f.NodeIP); err != nil || len(f.NodeIP) > 45 {
			return fmt.Errorf("nodeIP %.45q is no address", f.NodeIP)
		}
	}
	if f.Build < 0 || f.UBR < 0 || f.DiskFree < 0 || f.Memory < 0 {
		return fmt.Errorf("a number is negative")
	}
	return nil
}

// Check is like PreflightAnswer.Check.
func (a PrepareAnswer) Check() error { return checkText("bootID", a.BootID, MaxID) }

// Check is like PreflightAnswer.Check.
func (a ReceiveAnswer) Check() error {
	for _, digest := range a.Stored {
		if !IsDigest(digest) {
			return fmt.Errorf("stored %.64q is no digest", digest)
		}
	}
	if err := checkCount("stored", len(a.Stored)); err != nil {
		return err
	}
	return checkBlobs("missing", a.Missing)
}

// Check is like PreflightAnswer.Check. What the request asks for is checked before it is submitted.
func (a BootstrapAnswer) Check() error {
	if len(a.DaemonCSR) > maxRequest {
		return fmt.Errorf("the certificate request has %d bytes", len(a.DaemonCSR))
	}
	return checkHostName("nodeName", a.NodeName)
}

// Check is like PreflightAnswer.Check. Names of files that others left in C:\k may be anything, and
// only their number is checked: they must not keep a host from leaving.
func (a CleanupAnswer) Check() error {
	return checkCount("files and problems", len(a.Removed)+len(a.Left)+len(a.Kept))
}

// checkHostName allows whatever Windows may be called, and nothing that could be a path or a line.
func checkHostName(what, name string) error {
	if strings.ContainsAny(name, ` /\:*?"<>|`) {
		return fmt.Errorf("%s %.63q is no name", what, name)
	}
	return checkText(what, name, MaxName)
}

func checkText(what, text string, limit int) error {
	if len(text) > limit {
		return fmt.Errorf("%s has %d bytes", what, len(text))
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%s %.63q is not printable", what, text)
	}
	return nil
}

func checkTexts(what string, texts []string) error {
	for _, text := range texts {
		if err := checkText(what, text, MaxText); err != nil {
			return err
		}
	}
	return checkCount(what, len(texts))
}

func checkBlobs(what string, blobs []Blob) error {
	for _, b := range blobs {
		if !IsDigest(b.Digest) || b.Size < 0 {
			return fmt.Errorf("%s %.64q of %d bytes is no blob", what, b.Digest, b.Size)
		}
	}
	return checkCount(what, len(blobs))
}

func checkCount(what string, count int) error {
	if count > maxEntries {
		return fmt.Errorf("%d %s", count, what)
	}
	return nil
}
