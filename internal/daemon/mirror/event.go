package mirror

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// Reasons of events.
const (
	// ReasonFallback means that a pull succeeded after a source had failed or had interrupted the transfer.
	ReasonFallback = "MirrorFallback"
	// ReasonUnavailable means that no registry could provide the complete image.
	ReasonUnavailable = "ImageUnavailable"
	// ReasonRefused means that the cluster's blockedRegistries or allowedRegistries forbid the image.
	ReasonRefused = "ImageRefused"
)

const (
	// gatherPeriod is how long the Reporter waits for further reports, because an image has several parts.
	gatherPeriod = 2 * time.Second
	// repeatAfter is the time until an event is repeated if its cause continues. It is short enough that there is
	// always a current event (the API server keeps an event for an hour), and long enough that the count is meaningful.
	repeatAfter = 20 * time.Minute
	// lookInterval is the time until the next check for due events if no report arrives, or after a failure.
	lookInterval  = time.Minute
	createTimeout = 15 * time.Second
	maxSubjects   = 256
)

// subject is the topic of one event. It is either an image that no registry could provide, or, for all images together,
// a set of registries that were skipped for the same reasons.
type subject struct {
	key         string
	latest      resolver.Report
	first, last time.Time
	count       int
	// reportedAt is the time of the last event, and `counted` is the count in this event. Both are zero before the
	// first event.
	reportedAt time.Time
	counted    int
}

// isDue reports whether an event must be created: there was no event yet, or the last event is old enough and more
// reports have arrived since.
func (s *subject) isDue(now time.Time) bool {
	return s.reportedAt.IsZero() || s.count > s.counted && winos.Age(now, s.reportedAt) >= repeatAfter
}

func (h *Reporter) file(r resolver.Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key, now := keyOf(r), h.Clock.Now()
	s := h.subjects[key]
	if s == nil {
		if len(h.subjects) >= maxSubjects {
			delete(h.subjects, h.oldest())
		}
		s = &subject{key: key, first: now}
		h.subjects[key] = s
	}
	s.latest, s.last, s.count = r, now, s.count+1
}

func (h *Reporter) oldest() string {
	return slices.MinFunc(slices.Collect(maps.Keys(h.subjects)), func(a, b string) int {
		return h.subjects[a].last.Compare(h.subjects[b].last)
	})
}

// Run creates events until ctx ends. If an event can't be created, Run retries later.
func (h *Reporter) Run(ctx context.Context, client dynamic.Interface) {
	loop.Run(ctx, h.Clock, h.news, func(ctx context.Context) time.Duration {
		loop.Wait(ctx, h.Clock, nil, gatherPeriod)
		if err := h.tell(ctx, client); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Info("an event about pulls can't be made; it is tried again", "detail",
				err.Error())
		}
		return lookInterval
	})
}

// tell creates the due events: first the events about failures, then the other events, newest first in both groups.
func (h *Reporter) tell(ctx context.Context, client dynamic.Interface) error {
	now := h.Clock.Now()
	for _, s := range h.due(now) {
		if h.limiter.Tokens() < 1 {
			return nil // the next calls create the remaining events
		}
		err := h.create(ctx, client, s, now)
		switch {
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err): // the next attempt would be refused as well
			logr.FromContextOrDiscard(ctx).Info("an event about pulls was refused", "detail", err.Error())
		case err != nil:
			return err
		}
		h.limiter.Allow() // take a token for the event
		h.mu.Lock()
		if known := h.subjects[s.key]; known != nil {
			known.reportedAt, known.counted = now, s.count
		}
		h.mu.Unlock()
	}
	return nil
}

func (h *Reporter) due(now time.Time) (due []subject) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subjects {
		if s.isDue(now) {
			due = append(due, *s)
		}
	}
	failing := func(s subject) int { return map[bool]int{false: 1}[s.latest.IsFailure()] }
	slices.SortFunc(due, func(a, b subject) int {
		return cmp.Or(failing(a)-failing(b), b.last.Compare(a.last), strings.Compare(a.key, b.key))
	})
	return due
}

func keyOf(r resolver.Report) string {
	if r.IsFailure() {
		reason, _ := reasonOf(r)
		return reason + " " + r.Image
	}
	var sources []string
	for _, a := range r.Attempts {
		host, _, _ := strings.Cut(a.Source, "/")
		sources = append(sources, host+" "+string(a.Reason))
	}
	slices.Sort(sources)
	return "places " + strings.Join(slices.Compact(sources), ", ")
}

// reasonOf returns an event's reason and type. If a mirror only lacks an image, the type is Normal.
func reasonOf(r resolver.Report) (reason, kind string) {
	switch {
	case r.Refused != "":
		return ReasonRefused, corev1.EventTypeWarning
	case r.IsFailure():
		return ReasonUnavailable, corev1.EventTypeWarning
	case slices.ContainsFunc(r.Attempts, func(a resolver.Attempt) bool { return a.Reason != resolver.ReasonNotFound }):
		return ReasonFallback, corev1.EventTypeWarning
	}
	return ReasonFallback, corev1.EventTypeNormal
}

func (h *Reporter) create(ctx context.Context, client dynamic.Interface, s subject, now time.Time) error {
	reason, kind := reasonOf(s.latest)
	h.serial = max(h.serial+1, now.UnixNano()) // Windows' clock may show the same time for two events
	event := &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault,
			Name: fmt.Sprintf("%s.%x", h.NodeName, h.serial)},
		// Like kubelet, use the Node's name as the UID. kubectl describe finds the event by this UID.
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: h.NodeName,
			UID: types.UID(h.NodeName)},
		Reason: reason, Type: kind, Message: s.latest.Message(),
		Source:              corev1.EventSource{Component: contract.ServiceDaemon, Host: h.NodeName},
		ReportingController: contract.ServiceDaemon, ReportingInstance: h.NodeName,
		FirstTimestamp: metav1.NewTime(s.first), LastTimestamp: metav1.NewTime(s.last),
		Count: int32(min(s.count, 1<<30)), //nolint:gosec // bounded
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event)
	if err != nil {
		return fmt.Errorf("writing an event: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	events := client.Resource(schema.GroupVersionResource{Version: "v1",
		Resource: "events"}).Namespace(metav1.NamespaceDefault)
	if _, err = events.Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating an event: %w", err)
	}
	return nil
}
