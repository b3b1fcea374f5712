package resolver_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/mirror"
)

func TestLayersWithAddressesOfTheirOwnAreTold(t *testing.T) {
	t.Parallel()
	m := newImage(1, 10)
	u := newUpstream(t, m)
	foreign := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"digest":%q,"size":%d},"layers":[`+
		`{"digest":%q,"size":%d,"urls":["https://user:pw@elsewhere.test/x?sig=secret","https://elsewhere.test/y"]}]}`,
		manifestType, digestOf(m.config), len(m.config), digestOf(m.layer), len(m.layer))
	u.manifests[digestOf(foreign)] = foreign
	g := newRig(t, calm(), config(t, source+" digest "+u.host+"/m never"))
	for reference, want := range map[string]int{digestOf(foreign): 1, digestOf(m.manifest): 0} {
		var said lines
		request := httptest.NewRequestWithContext(logr.NewContext(t.Context(),
			logr.FromSlogHandler(slog.NewTextHandler(&said, nil))), http.MethodGet,
			"/v2/a/manifests/"+reference+"?ns="+source, nil)
		request.Header.Set(mirror.TokenHeader, mirror.Authorization(token))
		recorder := httptest.NewRecorder()
		g.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusOK {
			t.Fatal(recorder.Code)
		}
		if strings.Count(said.String(), "elsewhere.test") != want || strings.Contains(said.String(), "secret") {
			t.Error(said.String())
		}
	}
}
