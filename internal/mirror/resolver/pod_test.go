package resolver_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// handle requests a handle for a repository, with a pod's user and password and with this Authorization header. It
// returns the status and the handle.
func (g *rig) handle(t *testing.T, authorization, repository, user, password string) (status int, handle string) {
	t.Helper()
	form := url.Values{"grant_type": {"password"}, "service": {source}, "username": {user}, "password": {password},
		"scope": {"repository:" + repository + ":pull"}}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/token", strings.NewReader(form.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set(mirror.TokenHeader, authorization)
	recorder := httptest.NewRecorder()
	g.ServeHTTP(recorder, request)
	var answer struct{ Token string }
	_ = json.Unmarshal(recorder.Body.Bytes(), &answer)
	return recorder.Code, answer.Token
}

func TestAHandleIsForOneRepositoryAndForWhoHasTheToken(t *testing.T) {
	t.Parallel()
	g := newRig(t, calm(), config(t, source+" tag m.test never"))
	for _, stranger := range []string{"", basic("containerd:no"), "Bearer pod-x"} {
		if status, handle := g.handle(t, stranger, "a", "u", "p"); status < 400 || handle != "" {
			t.Errorf("%q got %q, %d", stranger, handle, status)
		}
	}
	status, handle := g.handle(t, mirror.Authorization(token), "a", "u", "p")
	if status != http.StatusOK || strings.Contains(handle, "u") && strings.Contains(handle, ":") {
		t.Fatal(status, handle)
	}
	for _, bad := range []string{"", "A", "a/../b"} {
		if status, _ := g.handle(t, mirror.Authorization(token), bad, "u", "p"); status != http.StatusBadRequest {
			t.Errorf("%q: %d", bad, status)
		}
	}
	for what, c := range map[string]struct {
		bearer, repository, service string
		again                       bool
	}{
		"its repository":        {handle, "a", source, false},
		"another repository":    {handle, "b", source, true},
		"another registry":      {handle, "a", "other.test", true},
		"another user's handle": {"pod-unknown", "a", source, true},
	} {
		a := plainly(t, g, http.MethodGet, "/v2/"+c.repository+"/manifests/latest?ns="+c.service,
			http.Header{mirror.TokenHeader: {"Bearer " + c.bearer}})
		asks := a.status == http.StatusUnauthorized &&
			strings.Contains(a.header.Get("WWW-Authenticate"), `error="invalid_token"`)
		if asks != c.again {
			t.Errorf("%s: %v %v", what, a, a.header)
		}
	}
}
