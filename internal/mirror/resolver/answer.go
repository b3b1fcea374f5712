package resolver

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// code is an error code of the distribution API.
type code string

const (
	codeUnsupported     code = "UNSUPPORTED"
	codeDenied          code = "DENIED"
	codeUnauthorized    code = "UNAUTHORIZED"
	codeNameInvalid     code = "NAME_INVALID"
	codeDigestInvalid   code = "DIGEST_INVALID"
	codeManifestUnknown code = "MANIFEST_UNKNOWN"
	codeBlobUnknown     code = "BLOB_UNKNOWN"
	codeUnavailable     code = "UNAVAILABLE"
)

// refuse answers with an error as the distribution API writes it. The message must repeat nothing
// that is not known to be harmless.
func refuse(w http.ResponseWriter, status int, c code, message string) {
	type one struct {
		Code    code   `json:"code"`
		Message string `json:"message"`
	}
	content, err := json.Marshal(struct {
		Errors []one `json:"errors"`
	}{[]one{{c, message}}})
	if err != nil {
		content = nil // two strings can always be written
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(content)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(content)
}

// refuseTarget answers to an address that asks for nothing that can be had.
func refuseTarget(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errUnknownPath):
		refuse(w, http.StatusNotFound, codeUnsupported, err.Error())
	case errors.Is(err, errReference):
		refuse(w, http.StatusBadRequest, codeDigestInvalid, err.Error())
	default:
		refuse(w, http.StatusBadRequest, codeNameInvalid, err.Error())
	}
}

// refuseNowhere answers when every source was skipped. 404 only if all say so, and 403 only if all
// refuse, or are not there. Before containerd gives up, it retries a status with which a source asks
// for that. It doesn't retry 502.
func refuseNowhere(w http.ResponseWriter, p *pull, r Report) {
	missing, denied := true, true
	for _, a := range r.Attempts {
		missing = missing && a.Reason == ReasonNotFound
		denied = denied && (a.Reason == ReasonDenied || a.Reason == ReasonNotFound)
	}
	switch {
	case len(r.Attempts) == 0:
		refuse(w, http.StatusForbidden, codeDenied, r.Message())
	case missing && p.target.endpoint == blobs:
		refuse(w, http.StatusNotFound, codeBlobUnknown, r.Message())
	case missing:
		refuse(w, http.StatusNotFound, codeManifestUnknown, r.Message())
	case denied:
		refuse(w, http.StatusForbidden, codeDenied, r.Message())
	default:
		refuse(w, cmp.Or(p.passing, http.StatusBadGateway), codeUnavailable, r.Message())
	}
}
