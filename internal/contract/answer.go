package contract

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a host's answers. Honest answers stay far below them. The API's own limits are at least as high.
const (
	MaxName    = 253 // of a host or Node, in bytes
	MaxID      = 128 // of a machine or a boot
	MaxText    = 256 // the name of a product, or an entry of NeedsPrepare
	maxEntries = 8192
	maxRequest = 16 << 10
)

// Check returns an error for an answer that no honest daemon sends. If it returns nil, the operator may safely store,
// compare and use the content. Exception: a caller that uses the Node's name must check the name itself.
func (a PreflightAnswer) Check() error {
	f := a.Facts
	return errors.Join(checkHostName("hostname", f.Hostname), checkHostName("nodeName", f.NodeName),
		checkText("machineID", f.MachineID, MaxID), checkText("bootID", f.BootID, MaxID),
		checkText("productName", f.ProductName, MaxText), checkBlobs("missing", a.Missing),
		checkCount("problems", len(a.Problems)), checkTexts("needsPrepare", a.NeedsPrepare),
		checkAddress("nodeIP", f.NodeIP), checkNumbers(int64(f.Build), int64(f.UBR), f.DiskFree, f.Memory))
}

// Check is like PreflightAnswer.Check.
func (a PrepareAnswer) Check() error { return checkText("bootID", a.BootID, MaxID) }

// Check is like PreflightAnswer.Check.
func (a ReceiveAnswer) Check() error {
	for _, digest := range a.Stored {
		if !IsDigest(digest) {
			return fmt.Errorf("stored %.64q is not a digest", digest)
		}
	}
	return errors.Join(checkCount("stored", len(a.Stored)), checkBlobs("missing", a.Missing))
}

// Check is like PreflightAnswer.Check. The certificate request itself is checked before it is submitted.
func (a BootstrapAnswer) Check() error {
	if len(a.DaemonCSR) > maxRequest {
		return fmt.Errorf("the certificate request has %d bytes", len(a.DaemonCSR))
	}
	return checkHostName("nodeName", a.NodeName)
}

// Check is like PreflightAnswer.Check, but checks only the number of entries. Other programs may have left files with
// any name in C:\k, and such files must not block the removal of a host.
func (a CleanupAnswer) Check() error {
	return checkCount("files and problems", len(a.Removed)+len(a.Left)+len(a.Kept))
}

// checkHostName accepts all names that Windows allows, and rejects texts that could be a path or have several lines.
func checkHostName(what, name string) error {
	if strings.ContainsAny(name, ` /\:*?"<>|`) {
		return fmt.Errorf("%s %.63q is not a name", what, name)
	}
	return checkText(what, name, MaxName)
}

func checkAddress(what, address string) error {
	if _, err := netip.ParseAddr(address); address != "" && err != nil || len(address) > 45 {
		return fmt.Errorf("%s %.45q is not an address", what, address)
	}
	return nil
}

func checkNumbers(numbers ...int64) error {
	for _, n := range numbers {
		if n < 0 {
			return errors.New("a number is negative")
		}
	}
	return nil
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
			return fmt.Errorf("%s %.64q of %d bytes is not a blob", what, b.Digest, b.Size)
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

// OneLine returns a text as one line of at most limit characters. It replaces control characters with spaces.
func OneLine(text string, limit int) string {
	line := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if runes := []rune(line); len(runes) > limit {
		line = string(runes[:limit-1]) + "…"
	}
	return line
}
