package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// An API server that has just started lists the groups of CRDs as stale or not at all. It serves their objects already,
// or will serve them within seconds. If the operator took OpenShift for a different kind of cluster, it would ignore
// OpenShift's settings until it restarts.
func TestA60_OpenShiftIsRecognisedWhileDiscoveryIsStale(t *testing.T) {
	t.Parallel()
	own, config, machines := v1alpha1.Group, configv1.GroupName, "machine.openshift.io"
	for name, test := range map[string]struct {
		starting *starting
		want     bool
	}{
		"the group is stale": {&starting{groups: []string{own}, stale: []string{config}, objects: true}, true},
		"the group is stale, and its objects are not served yet": {
			&starting{groups: []string{own}, stale: []string{config}}, true},
		"the group of Machines is stale": {
			&starting{groups: []string{own, config}, stale: []string{machines}, objects: true}, true},
		"the operator's own group is stale": {
			&starting{groups: []string{config}, stale: []string{own}, objects: true}, true},
		"the group is not listed, and its objects are served": {
			&starting{groups: []string{own}, objects: true, forever: true}, true},
		"another vendor's group stays stale": {&starting{groups: []string{own, config},
			stale: []string{"metrics.k8s.io"}, objects: true, forever: true}, true},
		"another vendor's group stays stale on a plain cluster": {&starting{groups: []string{own},
			stale: []string{"metrics.k8s.io"}, forever: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(test.starting)
			t.Cleanup(server.Close)
			restConfig := &rest.Config{Host: server.URL}
			got, err := recognise(t.Context(), restConfig, logr.Discard())
			if err != nil || got != test.want {
				t.Errorf("recognised as OpenShift: %v, %v", got, err)
			}
			asked := test.starting.asked.Load()
			if waits := !test.starting.forever; waits != (asked > late) {
				t.Errorf("the API server is asked %d times", asked)
			}
		})
	}
}

// late is a number of discovery requests. The API server becomes ready only after more requests, so an operator that
// decides after late requests decides too early.
const late = 2

// starting is an API server of OpenShift that is still starting. It becomes ready after more than late requests. If
// forever is set, it never becomes ready.
type starting struct {
	groups, stale    []string
	objects, forever bool
	asked            atomic.Int32
}

func (s *starting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ready := !s.forever && s.asked.Load() > late
	switch {
	case r.URL.Path == "/api":
		answer(w, ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", &apidiscoveryv2.APIGroupDiscoveryList{})
	case r.URL.Path == "/apis":
		ready = !s.forever && s.asked.Add(1) > late
		list := &apidiscoveryv2.APIGroupDiscoveryList{}
		for _, name := range slices.Concat(s.groups, s.stale) {
			version := apidiscoveryv2.APIVersionDiscovery{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
			if slices.Contains(s.stale, name) && !ready {
				version.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
			} else if name == configv1.GroupName {
				version.Resources = []apidiscoveryv2.APIResourceDiscovery{{Resource: "infrastructures",
					Scope:        apidiscoveryv2.ScopeCluster,
					ResponseKind: &metav1.GroupVersionKind{Group: name, Version: "v1", Kind: "Infrastructure"}}}
			}
			list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name},
				Versions: []apidiscoveryv2.APIVersionDiscovery{version}})
		}
		answer(w, ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", list)
	case strings.HasSuffix(r.URL.Path, "/infrastructures") && (s.objects || ready):
		answer(w, "", &configv1.InfrastructureList{
			TypeMeta: metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "InfrastructureList"},
			Items:    []configv1.Infrastructure{{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}}})
	default:
		http.NotFound(w, r)
	}
}

func answer(w http.ResponseWriter, as string, object any) {
	w.Header().Set("Content-Type", "application/json"+as)
	_ = json.NewEncoder(w).Encode(object)
}
