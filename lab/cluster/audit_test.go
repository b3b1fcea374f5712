package cluster

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// auditSample is a log of the API server: a read, a watch that began and ended, a refused watch, a watch in progress, a
// write, and an incomplete line.
const auditSample = `{"auditID":"1","stage":"ResponseComplete","requestURI":"/api/v1/nodes/a","verb":"get","user":{"username":"ann","groups":["g"]},"objectRef":{"resource":"nodes","name":"a","apiVersion":"v1"},"responseStatus":{"code":200},"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed"}}
{"auditID":"2","stage":"ResponseStarted","verb":"watch","user":{"username":"ann"},"objectRef":{"resource":"nodes"},"responseStatus":{"code":200}}
{"auditID":"2","stage":"ResponseComplete","verb":"watch","user":{"username":"ann"},"objectRef":{"resource":"nodes"},"responseStatus":{"code":200}}
{"auditID":"3","stage":"ResponseComplete","verb":"watch","user":{"username":"ann"},"objectRef":{"resource":"secrets"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"auditID":"4","stage":"ResponseStarted","verb":"watch","user":{"username":"bob"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
{"auditID":"5","stage":"ResponseComplete","verb":"patch","user":{"username":"bob"},"objectRef":{"resource":"nodes","name":"a","subresource":"status"},"responseStatus":{"code":200}}
{"auditID":"6","stage":"ResponseCompl`

func TestCountRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(file, []byte(auditSample), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		filter func(Request) bool
		want   map[UserVerb]int
	}{
		"everything once": {want: map[UserVerb]int{
			{"ann", "get"}: 1, {"ann", "watch"}: 2, {"bob", "watch"}: 1, {"bob", "patch"}: 1,
		}},
		"what was refused": {
			filter: func(r Request) bool { return r.Code == 403 && !r.Allowed && r.Resource == "secrets" },
			want:   map[UserVerb]int{{"ann", "watch"}: 1},
		},
		"writes": {filter: Request.IsWrite, want: map[UserVerb]int{{"bob", "patch"}: 1}},
		"by rule": {filter: func(r Request) bool { return r.Reason == "RBAC: allowed" },
			want: map[UserVerb]int{{"ann", "get"}: 1}},
		"nothing": {filter: func(Request) bool { return false }, want: map[UserVerb]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := CountRequests(file, test.filter)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, %v\nwant %v", got, err, test.want)
			}
		})
	}
	if _, err := CountRequests(file+".absent", nil); err == nil {
		t.Error("counting the requests of a missing log succeeded")
	}
}

func TestIsWrite(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		request Request
		want    bool
	}{
		"a read":              {Request{Verb: "list", Resource: "nodes"}, false},
		"an update":           {Request{Verb: "update", Resource: "leases"}, true},
		"a creation":          {Request{Verb: "create", Resource: "events"}, true},
		"an eviction":         {Request{Verb: "create", Resource: "pods", Subresource: "eviction"}, true},
		"a token request":     {Request{Verb: "create", Resource: "serviceaccounts", Subresource: "token"}, false},
		"an access review":    {Request{Verb: "create", Resource: "subjectaccessreviews"}, false},
		"a bulk deletion":     {Request{Verb: "deletecollection", Resource: "pods"}, true},
		"a post to no object": {Request{Verb: "post"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.request.IsWrite(); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
