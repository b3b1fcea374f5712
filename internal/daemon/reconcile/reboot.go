package reconcile

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// signPause is the time between two checks for a pending reboot. A check reads only a few registry values of Windows.
const signPause = 10 * time.Minute

// signRenames is the name of the sign that Windows will replace files at the next boot.
const signRenames = "PendingFileRename"

// run reports on the Node the boot ID, whether Windows waits for a reboot, and when the daemon's certificate expires.
// It reboots the host when the operator approves a reboot. It runs until ctx ends, independently of the reconcile loop.
func (b *reboots) run(ctx context.Context) {
	wake := make(chan struct{}, 1)
	b.node.Wake(wake)
	loop.Run(ctx, b.clock, wake, b.look)
}

// `reboots` handles reboots of the host, in its own goroutine.
type reboots struct {
	system         winos.System
	client         dynamic.Interface
	node           *apiclient.Watch
	clock          clock.Clock
	intervals      Intervals
	certificateEnd func() time.Time
	// `problem` is why an approved reboot failed, or nil. `changed` is signalled when `problem` changes.
	problem *atomic.Pointer[contract.Problem]
	changed chan<- struct{}
	// facts contains facts about the current boot. `looked` is the time when they were read.
	facts  winos.Facts
	looked time.Time
	// `asked` reports that the daemon has already requested the reboot that the operator approved last.
	asked bool
	// pause is the pause after the latest failure. It grows with each failure in a row.
	pause time.Duration
}

// look checks the Node, and returns the time until the next check.
func (b *reboots) look(ctx context.Context) time.Duration {
	node, _ := b.node.Get()
	if node == nil {
		return signPause
	}
	err := b.refresh(ctx)
	if err == nil {
		err = b.reboot(ctx, node)
	}
	if err == nil {
		err = b.say(ctx, node)
	}
	if err != nil {
		if ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Info("the check for reboots failed", "detail", err.Error())
		}
		b.pause = loop.Grow(b.pause, 2, b.intervals.Failing, b.intervals.FailingLimit)
		return loop.Jitter(b.pause)
	}
	b.pause = 0
	return signPause - b.clock.Since(b.looked)
}

// tell passes the error of a reboot request, or nil, to the loop, which reports it to the operator.
func (b *reboots) tell(err error) {
	var problem *contract.Problem
	if err != nil {
		problem = contract.NewProblem(contract.ReasonRebootFailed, "%v", err)
	}
	if isNews(b.problem.Swap(problem), problem) {
		loop.Signal(b.changed)
	}
}

func (b *reboots) refresh(ctx context.Context) (err error) {
	if !b.looked.IsZero() && b.clock.Since(b.looked) < signPause {
		return nil
	}
	if b.facts, err = b.system.Facts(ctx); err == nil {
		b.looked = b.clock.Now()
	}
	return err
}

// `reboot` reboots the host if the operator has approved the end of exactly this boot: the approval must equal the boot
// ID that this daemon reports. One approval causes one successful request. `reboot` ignores an approval with the
// shorter ID of an older daemon, because a previous boot may have the same ID. The operator then approves the full ID.
func (b *reboots) reboot(ctx context.Context, node *unstructured.Unstructured) error {
	if b.facts.BootID == "" || node.GetAnnotations()[contract.RebootApprovedAnnotation] != b.facts.BootID {
		b.asked = false
		b.tell(nil)
		return nil
	}
	if b.asked {
		return nil
	}
	logr.FromContextOrDiscard(ctx).Info("rebooting, as the operator has approved", "boot", b.facts.BootID)
	err := b.system.Reboot(ctx, "The Windows Machine Config Operator has drained this node for a reboot.")
	b.tell(err)
	b.asked = err == nil
	return err
}

// say updates those annotations of the Node that don't match the current facts.
func (b *reboots) say(ctx context.Context, node *unstructured.Unstructured) error {
	have, changes := node.GetAnnotations(), map[string]any{}
	if have[contract.BootIDAnnotation] != b.facts.BootID {
		changes[contract.BootIDAnnotation] = b.facts.BootID
	}
	pending, exists := have[contract.RebootPendingAnnotation]
	switch signs := signs(b.facts); {
	case signs == "" && exists:
		changes[contract.RebootPendingAnnotation] = nil
	case signs != pending:
		changes[contract.RebootPendingAnnotation] = signs
	}
	if b.certificateEnd != nil {
		if end := b.certificateEnd().UTC().Format(time.RFC3339); have[contract.CertificateEndAnnotation] != end {
			changes[contract.CertificateEndAnnotation] = end
		}
	}
	if len(changes) == 0 {
		return nil
	}
	_, err := apiclient.AnnotateNode(ctx, b.client, b.node, node, changes)
	return err
}

// signs returns the signs that Windows waits for a reboot, separated by commas. It ignores replacements of files in
// C:\k, because the daemon replaces these files without a reboot, even while they are in use.
func signs(facts winos.Facts) string {
	signs := slices.Clone(facts.RebootSigns)
	if slices.ContainsFunc(facts.ReplacedAtBoot,
		func(path string) bool { return !contract.Within(contract.DirK, path) }) {
		signs = append(signs, signRenames)
	}
	return strings.Join(signs, ",")
}
