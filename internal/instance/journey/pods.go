package journey

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// MaxPodListBytes is the most that one list of pods may have: some thousand usual pods, or five of the
// largest that there can be.
const MaxPodListBytes = 8 << 20

// passLimit is for how long one look at all pods of a node goes on. The API server gives up a list after
// five minutes.
const passLimit = 30 * time.Second

// errTooLarge says that an answer has more than MaxPodListBytes.
var errTooLarge = errors.New("the answer is too large")

// PodClient makes a client whose answers are bounded, for Options.Pods. Whoever may create pods can
// give them a node's name without a scheduler, in any number and 1.5 MB each.
func PodClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return boundedTransport{next} })
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for pods: %w", err)
	}
	return clients, nil
}

type boundedTransport struct{ next http.RoundTripper }

// RoundTrip is http.RoundTripper.
func (b boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(request)
	if err == nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: MaxPodListBytes}
	}
	return response, err
}

// boundedBody fails where http.MaxBytesReader would, which is for servers.
type boundedBody struct {
	io.ReadCloser
	left int
}

// Read is io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// eachPod shows all pods of a node, one list at a time: first all at once, which costs the API server
// least, and where that is too large in ever smaller parts. It ends after passLimit, or when the API server
// gives up the list; then it has not shown all.
func (p *Parts) eachPod(ctx context.Context, nodeName string, visit func(pod *corev1.Pod) error) (all bool, err error) {
	began := p.Now()
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", nodeName).String()}
	smaller := map[int64]int64{0: 100, 100: 10, 10: 1}
	for {
		list, err := p.Pods.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		if limit, more := smaller[options.Limit]; more && errors.Is(err, errTooLarge) {
			options.Limit, began = limit, p.Now()
			continue
		}
		if apierrors.IsResourceExpired(err) && options.Continue != "" {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("listing pods of node %s: %w", nodeName, err)
		}
		for i := range list.Items {
			if err = visit(&list.Items[i]); err != nil {
				return false, err
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return true, nil
		}
		if p.Now().Sub(began) > passLimit {
			return false, nil
		}
	}
}

// mustGo reports whether a drain moves a pod: not what the node itself or a DaemonSet runs there.
func (p *Parts) mustGo(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if _, static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return false, nil
	}
	owner := metav1.GetControllerOf(pod)
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if owner == nil || ended || owner.Kind != "DaemonSet" || owner.APIVersion != appsv1.SchemeGroupVersion.String() {
		return true, nil
	}
	_, err := p.Pods.AppsV1().DaemonSets(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil // nothing would start it anew
	}
	if err != nil {
		return false, fmt.Errorf("reading DaemonSet %s/%s: %w", pod.Namespace, owner.Name, err)
	}
	return false, nil
}
