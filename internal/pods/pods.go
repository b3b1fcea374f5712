// Package pods answers which pods there are, in bounded memory and without a cache of them.
//
// Whoever may create pods can make any number of them, 1.5 MB each, and give them a node's name
// without a scheduler. Drains and the check of workloads read them here: one bounded answer at a
// time, in ever smaller pages, and not for ever. It shows pods and keeps none; it changes nothing.
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
	// MaxBytes is the most that one answer may have: some thousand usual pods, or five of the largest
	// that there can be.
	MaxBytes = 8 << 20
	// PassLimit is for how long one look at pods goes on. The API server gives up a list after five
	// minutes.
	PassLimit = 30 * time.Second
	// callTimeout bounds one list.
	callTimeout = 30 * time.Second
	// Page is for lists of pods of the whole cluster, which the API server can't answer all at once.
	Page = 500
)

// NewClient makes a client whose answers are bounded. It reads protobuf, as client-go's do by default:
// in JSON a single pod of characters that are escaped would be larger than MaxBytes, and never be read.
func NewClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return response.Transport(next, MaxBytes) })
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for pods: %w", err)
	}
	return clients, nil
}

// Query says which pods to read, and how.
type Query struct {
	Fields fields.Selector
	// Page is how many the first list requests; 0 is all at once, which costs the API server least
	// where it has an index: of the pods of a node.
	Page int64
	// Cached has the API server answer from memory, which may be a little behind, what is read all at
	// once.
	Cached bool
	// Now is the clock.
	Now func() time.Time
}

// OfNode selects the pods of a node.
func OfNode(name string) fields.Selector { return fields.OneTermEqualSelector("spec.nodeName", name) }

// Each passes the selected pods to visit, one list at a time. If a list is too large, it uses smaller and smaller
// pages. It ends after PassLimit, or if the API server abandons the list; then all is false. visit must copy what it
// keeps of a pod, because a substring keeps the whole text in memory.
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
			// From memory the API server gives no pages.
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
