package reconcile

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
)

// latestWait is how long the daemon waits until its watch delivers a revision that the Node's annotation names. The
// operator publishes the revision first, but the Secret's watch may be slower than the Node's watch.
const latestWait = 3 * time.Second

// latest watches the Secret with the most recently published revision. The Secret only delivers content. The Node's
// annotation decides which revision the host must have. The daemon uses the Secret only if it contains this revision.
type latest struct {
	watch *apiclient.Watch
	clock clock.Clock
	// `seen` reports that the Secret has existed since the daemon started. `revision` is the last revision that the
	// daemon waited for, and `until` is the end of this wait. isAwaited reports that the last lookup decided to wait.
	seen      bool
	revision  string
	until     time.Time
	isAwaited bool
}

// `of` returns a revision's content from the watch, or the zero value if the watch has no valid content.
func (l *latest) of(revision string) contract.Latest {
	object, _ := l.watch.Get()
	if object == nil {
		return contract.Latest{}
	}
	l.seen = true
	var secret corev1.Secret
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &secret); err != nil {
		return contract.Latest{}
	}
	content, err := contract.ParseLatest(secret.Data)
	if err != nil || content.Revision != revision {
		return contract.Latest{}
	}
	return content
}

// `awaits` reports whether the watch may still deliver a revision, so that the daemon need not read the ConfigMap of
// the revision. If the Secret existed earlier but is missing now, the daemon waits as well, because the operator may be
// replacing the Secret.
func (l *latest) awaits(revision string) bool {
	if object, known := l.watch.Get(); !known || object == nil && !l.seen {
		return false
	}
	if l.revision != revision {
		l.revision, l.until = revision, l.clock.Now().Add(latestWait)
	}
	l.isAwaited = l.clock.Now().Before(l.until)
	return l.isAwaited
}
