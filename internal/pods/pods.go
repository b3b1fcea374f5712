// Package pods reads pods in bounded memory and without a cache.
//
// A user who may create pods can create any number of pods of 1.5 MB each, and assign them to a node without a
// scheduler. Drains and the check of workloads read pods with this package: one bounded response at a time, in
// smaller and smaller pages, and for a limited time. The package stores no pods and changes nothing.
package pods

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/response"
)

const (
	// MaxBytes is the maximum size of a response: some thousand usual pods, or five pods of the maximum size.
	MaxBytes = 8 << 20
	// PassLimit is the maximum time to list pods. The API server abandons a list after five minutes.
	PassLimit = 30 * time.Second
	// callTimeout is the maximum time of one list request.
	callTimeout = 30 * time.Second
	// Page is the page size for lists of all pods of the cluster. The API server can't return all of them at once.
	Page = 500
)

// NewClient creates a client with bounded responses. It reads protobuf, like client-go's clients by default. In
// JSON, a single pod with many escaped characters would exceed MaxBytes and could never be read.
func NewClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return response.Transport(next, MaxBytes) })
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for pods: %w", err)
	}
	return clients, nil
}

// Query selects the pods to read, and how to read them.
type Query struct {
	Fields fields.Selector
	// Page is the number of pods in the first list. 0 means all pods. If the API server has an index for the
	// selection, as for the pods of a node, one list of all pods is the cheapest request.
	Page int64
	// Cached lets the API server respond from memory, which may be slightly outdated. It only applies if all pods
	// are read at once.
	Cached bool
	// Now is the clock.
	Now func() time.Time
}

// OfNode selects the pods of a node.
func OfNode(name string) fields.Selector { return fields.OneTermEqualSelector("spec.nodeName", name) }

// Each passes the selected pods to visit, one list at a time. If a list is too large, it uses smaller and smaller
// pages. If PassLimit is over, or if the API server abandons the list, Each ends and returns false. If visit keeps a
// string of a pod, it must copy the string: a substring keeps the whole response in memory.
func Each(ctx context.Context, api kubernetes.Interface, query Query,
	visit func(pod *corev1.Pod) error) (all bool, err error) {
	began := query.Now()
	options := metav1.ListOptions{FieldSelector: query.Fields.String(), Limit: query.Page}
	if query.Cached {
		options.ResourceVersion = "0"
	}
	smaller := map[int64]int64{0: 100, Page: 100, 100: 10, 10: 1}
	for {
		list, err := page(ctx, api, options)
		if limit, more := smaller[options.Limit]; more && response.IsTooLarge(err) {
			// The API server returns no pages from memory.
			options.Limit, options.ResourceVersion, began = limit, "", query.Now()
			continue
		}
		if apierrors.IsResourceExpired(err) && options.Continue != "" {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("listing pods: %w", err)
		}
		options.Continue = list.Continue
		for i := range list.Items {
			if err = visit(&list.Items[i]); err != nil {
				return false, err
			}
			last := i == len(list.Items)-1 && list.Continue == ""
			if !last && query.Now().Sub(began) > PassLimit {
				return false, nil
			}
		}
		if options.Continue == "" {
			return true, nil
		}
	}
}

// page reads one list.
func page(ctx context.Context, api kubernetes.Interface, options metav1.ListOptions) (*corev1.PodList, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return api.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
}
