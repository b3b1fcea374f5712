package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"
)

// Request is one request in the audit log that the API server answered, or a watch that it began.
type Request struct {
	// User is the authenticated user. Impersonated is the impersonated user, if any.
	User, Impersonated string
	Groups             []string
	// Verb is the verb of the API: get, list, watch, create, update, patch, delete, deletecollection. For non-resource
	// URLs, it is the HTTP method in lower case.
	Verb string
	// Group, Resource, Subresource, Namespace and Name identify the object. For a non-resource URL such as /healthz,
	// all are empty.
	Group, Resource, Subresource, Namespace, Name string
	// URI is the request's path and query.
	URI       string
	UserAgent string
	// Code is the HTTP status: 403 if the request was refused.
	Code int
	// Allowed reports whether the authorizer allowed the request. Reason names the rule. For RBAC, it names the binding
	// and the role.
	Allowed bool
	Reason  string
	// Received is the time of the request.
	Received time.Time
}

// IsWrite reports whether the request changes objects, whether or not it succeeded. Reviews and token requests, which
// are created but never stored, don't count.
func (r Request) IsWrite() bool {
	switch r.Verb {
	case "update", "patch", "delete", "deletecollection":
		return true
	case "create":
		return r.Subresource != "token" && !strings.HasSuffix(r.Resource, "reviews")
	default:
		return false
	}
}

// UserVerb is a key of the map that CountRequests returns.
type UserVerb struct{ User, Verb string }

// CountRequests counts the requests in an audit log, per user and verb. filter selects the requests to count; nil
// selects all. It counts all requests answered before the call, even if the API server is still writing.
func CountRequests(file string, filter func(r Request) bool) (map[UserVerb]int, error) {
	counts := map[UserVerb]int{}
	for request, err := range Requests(file) {
		if err != nil {
			return nil, err
		}
		if filter == nil || filter(request) {
			counts[UserVerb{User: request.User, Verb: request.Verb}]++
		}
	}
	return counts, nil
}

// Requests iterates over an audit log, oldest first, and yields each request once: a watch when it has begun, other
// requests when they are answered. It stops at the first error.
func Requests(file string) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		log, err := os.Open(file)
		if err != nil {
			yield(Request{}, fmt.Errorf("reading the audit log: %w", err))
			return
		}
		defer log.Close()
		if err := readRequests(log, yield); err != nil {
			yield(Request{}, fmt.Errorf("reading the audit log: %w", err))
		}
	}
}

// readRequests passes the requests of a log to `yield` until `yield` returns false.
func readRequests(log io.Reader, yield func(Request, error) bool) error {
	lines := bufio.NewReader(log)
	begun := map[string]bool{} // IDs of watches that were yielded and haven't ended
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // a line without its end is still being written
		}
		if err != nil {
			return err
		}
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		switch {
		case event.Stage == "ResponseStarted":
			begun[event.AuditID] = true
		case begun[event.AuditID]:
			delete(begun, event.AuditID)
			continue
		}
		if !yield(event.request(), nil) {
			return nil
		}
	}
}

// auditEvent contains the fields of an audit.k8s.io/v1 Event that a Request needs.
type auditEvent struct {
	AuditID    string `json:"auditID"`
	Stage      string `json:"stage"`
	RequestURI string `json:"requestURI"`
	Verb       string `json:"verb"`
	User       struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	} `json:"user"`
	ImpersonatedUser struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	UserAgent string `json:"userAgent"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestReceivedTimestamp time.Time         `json:"requestReceivedTimestamp"`
	Annotations              map[string]string `json:"annotations"`
}

func (e auditEvent) request() Request {
	return Request{
		User:         e.User.Username,
		Impersonated: e.ImpersonatedUser.Username,
		Groups:       e.User.Groups,
		Verb:         e.Verb,
		Group:        e.ObjectRef.APIGroup,
		Resource:     e.ObjectRef.Resource,
		Subresource:  e.ObjectRef.Subresource,
		Namespace:    e.ObjectRef.Namespace,
		Name:         e.ObjectRef.Name,
		URI:          e.RequestURI,
		UserAgent:    e.UserAgent,
		Code:         e.ResponseStatus.Code,
		Allowed:      e.Annotations["authorization.k8s.io/decision"] == "allow",
		Reason:       e.Annotations["authorization.k8s.io/reason"],
		Received:     e.RequestReceivedTimestamp,
	}
}
