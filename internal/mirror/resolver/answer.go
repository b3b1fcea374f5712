package resolver

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// refuse answers with an error in the format of the distribution API. The message must contain only text that is known
// to be harmless.
func refuse(w http.ResponseWriter, status int, code transport.ErrorCode, message string) {
	// Marshal can't fail for these types.
	content, _ := json.Marshal(map[string]any{"errors": []transport.Diagnostic{{Code: code, Message: message}}})
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(content)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(content)
}

func refuseTarget(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errUnknownPath):
		refuse(w, http.StatusNotFound, transport.UnsupportedErrorCode, err.Error())
	case errors.Is(err, errReference):
		refuse(w, http.StatusBadRequest, transport.DigestInvalidErrorCode, err.Error())
	default:
		refuse(w, http.StatusBadRequest, transport.NameInvalidErrorCode, err.Error())
	}
}

// refuseNowhere sends the error if no source delivered the target. If there was no source to try, the status is 403. If
// every source answered 404, it is 404. If each source denied the image or answered 404, it is 403. In all other cases,
// it is p.passing. If p.passing is 0, the status is 502, and containerd doesn't retry.
func refuseNowhere(w http.ResponseWriter, p *pull, r Report) {
	missing, denied := true, true
	for _, a := range r.Attempts {
		missing = missing && a.Reason == ReasonNotFound
		denied = denied && (a.Reason == ReasonDenied || a.Reason == ReasonNotFound)
	}
	switch {
	case len(r.Attempts) == 0:
		refuse(w, http.StatusForbidden, transport.DeniedErrorCode, r.Message())
	case missing && p.target.endpoint == blobs:
		refuse(w, http.StatusNotFound, transport.BlobUnknownErrorCode, r.Message())
	case missing:
		refuse(w, http.StatusNotFound, transport.ManifestUnknownErrorCode, r.Message())
	case denied:
		refuse(w, http.StatusForbidden, transport.DeniedErrorCode, r.Message())
	default:
		refuse(w, cmp.Or(p.passing, http.StatusBadGateway), transport.UnavailableErrorCode, r.Message())
	}
}
