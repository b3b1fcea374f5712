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

// refuse answers with an error in the format of the distribution API. The message must contain only text that is known
// to be harmless.
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

// refuseTarget answers a request whose address is invalid.
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

// refuseNowhere answers when every source was skipped. It answers 404 only if all sources do, and 403 only if each
// source denies the image or lacks it. If a source answered with a status that asks for a retry, refuseNowhere passes
// this status on, and containerd retries. containerd doesn't retry 502.
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
