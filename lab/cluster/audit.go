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

// Request is one request that the API server answered, or a watch that it began,
// as its audit log tells it.
type Request struct {
	// User is who was authenticated; Impersonated whom it then spoke for, if any.
	User, Impersonated string
	Groups             []string
	// Verb is the API's: get, list, watch, create, update, patch, delete,
	// deletecollection, or the HTTP method in lower case for other URLs.
	Verb string
	// Group, Resource, Subresource, Namespace and Name are of the object; all
	// are empty for a URL that is no resource, as /healthz.
	Group, Resource, Subresource, Namespace, Name string
	// URI is the request's path and query.
	URI       string
	UserAgent string
	// Code is the HTTP status: 403 if the request was refused.
	Code int
	// Allowed says whether the authorizer let it pass, and Reason by which rule:
	// RBAC names the binding and the role.
	Allowed bool
	Reason  string
	// Received is when it came in.
	Received time.Time
}

// IsWrite reports whether the request was one that changes objects, whether or
// not it succeeded. Reviews and token requests, which are created but never
// stored, are no writes.
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

// UserVerb is what CountRequests counts by.
type UserVerb struct{ User, Verb string }

// CountRequests counts the requests in an audit log, per user and verb. Filter
// chooses among them; nil takes them all. The API server may be writing the file:
// what was answered before the call is counted.
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

// Requests walks through an audit log, oldest first, and yields each request
// once: a watch when it has begun, anything else when it is answered. An error
// ends the walk.
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

// readRequests passes the requests of a log to yield until that returns false.
func readRequests(log io.Reader, yield func(Request, error) bool) error {
	lines := bufio.NewReader(log)
	begun := map[string]bool{} // requests yielded at their begin, until their end
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

// auditEvent is the part of audit.k8s.io/v1 Event that a Request is made of.
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
