package plan_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/lab/sim"
)

// aws simulates version 2 of Amazon's metadata service, which refuses requests without a token.
func aws(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, "a-token==")
	})
	mux.HandleFunc("GET /latest/meta-data/local-hostname", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-aws-ec2-metadata-token") != "a-token==" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, name)
	})
	return mux
}

func gcp(name, flavor string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" || r.URL.Path != "/computeMetadata/v1/instance/hostname" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Metadata-Flavor", flavor)
		_, _ = io.WriteString(w, name)
	})
}

func text(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

func TestNamesByTheCloud(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 63)
	asAWS := func(ctx context.Context, s *plan.Metadata) (string, error) { return s.AWSHostname(ctx) }
	asGCP := func(ctx context.Context, s *plan.Metadata) (string, error) { return s.GCPHostname(ctx) }
	for name, c := range map[string]struct {
		handler http.Handler
		ask     func(context.Context, *plan.Metadata) (string, error)
		want    string
		reason  contract.Reason
	}{
		"AWS": {aws("ip-10-0-1-2.eu-west-1.compute.internal"), asAWS,
			"ip-10-0-1-2.eu-west-1.compute.internal", ""},
		"AWS with several domains": {aws("IP-10-0-1-2.one.example ip-10-0-1-2.two.example"), asAWS,
			"ip-10-0-1-2.one.example", ""},
		"AWS with an invalid name": {aws(`x" --privileged`), asAWS, "", contract.ReasonHostnameInvalid},
		"AWS with an empty name":   {aws(""), asAWS, "", contract.ReasonHostnameInvalid},
		"AWS that answers without end": {aws(strings.Repeat("a.", 4000)), asAWS, "",
			contract.ReasonMetadataUnavailable},
		"AWS with the service switched off": {text(http.StatusForbidden, "no"), asAWS, "",
			contract.ReasonMetadataUnavailable},
		"AWS with a token over two lines": {text(http.StatusOK, "a\r\nX-Evil: 1"), asAWS, "",
			contract.ReasonMetadataUnavailable},
		"something that redirects": {http.RedirectHandler("http://169.254.169.254/latest/api/token",
			http.StatusFound), asAWS, "", contract.ReasonMetadataUnavailable},
		"no cloud at all": {nil, asAWS, "", contract.ReasonMetadataUnavailable},
		"GCP": {gcp("win-1.c.project.internal", "Google"), asGCP,
			"win-1.c.project.internal", ""},
		"GCP with 63 characters":           {gcp(long, "Google"), asGCP, long, ""},
		"GCP with a long name with a dot":  {gcp("win-1."+long, "Google"), asGCP, "win-1", ""},
		"GCP with a long name without one": {gcp(long+"bbb", "Google"), asGCP, long, ""},
		"GCP with a long first part":       {gcp(long+"bbb.x", "Google"), asGCP, long, ""},
		"GCP cut at a hyphen":              {gcp(long[:62]+"-bbb", "Google"), asGCP, long[:62], ""},
		"GCP with another server's answer": {gcp("win-1", ""), asGCP, "", contract.ReasonMetadataUnavailable},
		"GCP with an error": {text(http.StatusNotFound, "x"), asGCP, "",
			contract.ReasonMetadataUnavailable},
		"GCP with a name that a shell follows": {gcp("$(calc)", "Google"), asGCP, "", contract.ReasonHostnameInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := sim.New(sim.Options{Metadata: c.handler})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			})
			got, err := c.ask(t.Context(), plan.NewMetadata(m.Host().Network))
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			problem, ok := contract.AsProblem(err)
			if c.reason == "" && err != nil || c.reason != "" && (!ok || problem.Reason != c.reason) {
				t.Errorf("got %v, want %s", err, c.reason)
			}
			if err != nil && strings.Contains(err.Error(), "a-token") {
				t.Errorf("the error has the token: %v", err)
			}
		})
	}
}

func TestAMetadataServiceThatNeverAnswersIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := sim.New(sim.Options{Metadata: http.HandlerFunc(func(_ http.ResponseWriter,
			r *http.Request) {
			<-r.Context().Done()
		})})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = plan.NewMetadata(m.Host().Network).AWSHostname(t.Context())
		if p, ok := contract.AsProblem(err); !ok || p.Reason != contract.ReasonMetadataUnavailable {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the request took %s", took)
		}
		if err = m.Close(); err != nil {
			t.Error(err)
		}
	})
}
