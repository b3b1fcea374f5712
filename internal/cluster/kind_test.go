package cluster_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/windows-nodes/wmco/internal/cluster"
)

// While an API server starts, discovery may report a group version as stale. Then the operator must request the group
// version itself. Otherwise the operator would treat the kinds of the group as missing, and not watch them.
func TestA60_AKindThatDiscoveryCallsStaleIsNotTakenForOneThatIsAbsent(t *testing.T) {
	t.Parallel()
	const resources = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"config.openshift.io/v1",` +
		`"resources":[{"name":"infrastructures","namespaced":false,"kind":"Infrastructure","verbs":["list"]}]}`
	for name, test := range map[string]struct {
		status       int
		served, says bool
	}{
		"it is served":             {status: http.StatusOK, served: true},
		"it is absent":             {status: http.StatusNotFound},
		"the API server starts":    {status: http.StatusServiceUnavailable, says: true},
		"the API server is broken": {status: http.StatusInternalServerError, says: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch r.URL.Path {
				case "/api", "/apis":
					w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
					_, _ = io.WriteString(w, `{"items":[{"metadata":{"name":"apps"},"versions":[{"version":"v1",`+
						`"freshness":"Current","resources":[]}]},{"metadata":{"name":"config.openshift.io"},`+
						`"versions":[{"version":"v1","freshness":"Stale"}]}]}`)
				case "/apis/config.openshift.io/v1":
					w.WriteHeader(test.status)
					if test.served {
						_, _ = io.WriteString(w, resources)
					}
				default:
					http.NotFound(w, r)
				}
			}))
			t.Cleanup(server.Close)
			mapper, err := apiutil.NewDynamicRESTMapper(&rest.Config{Host: server.URL}, server.Client())
			if err != nil {
				t.Fatal(err)
			}
			served, err := cluster.Served(mapper, configv1.GroupVersion.WithKind("Infrastructure"))
			if served != test.served || (err != nil) != test.says {
				t.Errorf("served: %v, %v", served, err)
			}
			served, err = cluster.Served(mapper, machinev1beta1.GroupVersion.WithKind("Machine"))
			if served || err != nil {
				t.Errorf("a kind of an unknown group: %v, %v", served, err)
			}
		})
	}
}
