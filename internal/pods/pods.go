// Package pods reads pods with limited memory and without a cache.
//
// Users with the right to create pods can create any number of pods, 1.5 MB each, and assign them to a node without a
// scheduler. So drains and the check of workloads use this package. It reads one response of limited size at a time,
// requests smaller pages if a response is too large, and stops after some time. It stores no pods and changes nothing.
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
	// MaxBytes is the maximum size of a response: enough for a few thousand typical pods, or for five of the largest.
	MaxBytes = 8 << 20
	// PassLimit is the time limit for all pages of a list. The API server abandons a list after five minutes.
	PassLimit   = 30 * time.Second
	callTimeout = 30 * time.Second
	// Page is the page size for lists of all pods of the cluster, which don't fit into one response.
	Page = 500
)

// NewClient returns a client whose responses are limited to MaxBytes. It uses protobuf, because in JSON, a single pod
// with many escaped characters would exceed MaxBytes.
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
	// Page is the number of pods in a page. 0 means one list with all pods. This is the cheapest request if the API
	// server has an index for the selection. It has an index for the pods on a node.
	Page int64
	// Cached lets the API server respond from its cache, which may be slightly outdated. Cached only has an effect if
	// all pods are read in one list.
	Cached bool
	Now    func() time.Time
}

// OfNode selects the pods on a node.
func OfNode(name string) fields.Selector { return fields.OneTermEqualSelector("spec.nodeName", name) }

// Each calls `visit` for every selected pod. It reads one list at a time. If a list is too large, Each reads smaller
// pages. If PassLimit is over, or if the API server abandons the list, Each stops and returns false. If visit keeps a
// string from a pod, visit must copy the string, because the string keeps the whole response in memory.
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
			// Read from etcd, because the API server returns no pages from its cache.
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

func page(ctx context.Context, api kubernetes.Interface, options metav1.ListOptions) (*corev1.PodList, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return api.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
}
