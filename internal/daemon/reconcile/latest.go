package reconcile

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
)

// latestWait is how long a revision is awaited that the Node names and the watch of what was published
// last has yet to bring: it was published before, and comes by another way.
const latestWait = 3 * time.Second

// latest is what was published last, by a watch. It is never more than a way to get content: which
// revision the host is to have, the Node says, and whether this is that one, its name.
type latest struct {
	watch *apiclient.Watch
	clock clock.Clock
	// seen says that there was something. revision is what is awaited until then, or was; isAwaited that
	// the last look for a revision left it at that.
	seen      bool
	revision  string
	until     time.Time
	isAwaited bool
}

// of gives what the watch has of a revision; nothing when that is another one, or damaged.
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
	has, err := contract.ParseLatest(secret.Data)
	if err != nil || has.Revision != revision {
		return contract.Latest{}
	}
	return has
}

// awaits says that a revision may be about to come, so that it need not be read. There is a moment
// without any while one is replaced by the next.
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
