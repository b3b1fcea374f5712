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
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// signPause lies between two looks at whether Windows waits for a reboot. A look reads a few values
// of the registry.
const signPause = 10 * time.Minute

// signRenames is the sign that files are put in their places by the next boot.
const signRenames = "PendingFileRename"

// run reports on the Node which boot this is, whether Windows waits for another, and how long
// this daemon can speak at all, and reboots when the operator says so, until ctx ends. It waits for
// nothing that the loop does.
func (b *reboots) run(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	wake := make(chan struct{}, 1)
	b.node.Wake(wake)
	for ctx.Err() == nil {
		wait := b.look(ctx)
		if wait <= 0 {
			wait = signPause
		}
		timer := b.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C():
		}
		timer.Stop()
	}
	log.V(1).Info("no longer looking after reboots")
}

// reboots looks after reboots of the host, in a goroutine of its own.
type reboots struct {
	system         winos.System
	client         dynamic.Interface
	node           *apiclient.Watch
	clock          clock.Clock
	intervals      Intervals
	certificateEnd func() time.Time
	// problem is what keeps the host from a reboot that the operator approved of, or nil. told is signalled when it
	// changes.
	problem *atomic.Pointer[contract.Problem]
	told    chan<- struct{}
	// facts of the present boot, and when they were read.
	facts  winos.Facts
	looked time.Time
	// asked says that a reboot was asked for since the operator last approved of one.
	asked bool
	// pause of the present row of failures.
	pause time.Duration
}

// look looks at the Node, and answers when to look again if nothing is seen before.
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
			logr.FromContextOrDiscard(ctx).Info("looking after reboots did not succeed", "detail", err.Error())
		}
		b.pause = grow(b.pause, 2, b.intervals.Failing, b.intervals.FailingLimit)
		return apiclient.Jitter(b.pause)
	}
	b.pause = 0
	return signPause - b.clock.Since(b.looked)
}

// tell has the loop tell the operator, which waits for a reboot, what Windows answered; nil is no error.
func (b *reboots) tell(err error) {
	var problem *contract.Problem
	if err != nil {
		problem = contract.NewProblem(contract.ReasonRebootFailed, "%v", err)
	}
	if isNews(b.problem.Swap(problem), problem) {
		signal(b.told)
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

// reboot reboots the host if the operator has approved of the end of this very boot. It asks once
// for each approval. The name must be equal: the operator repeats an approval with the name that this
// daemon gives the boot, and one by a shorter name may have been for the boot before.
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

// say writes to the Node what it does not say yet.
func (b *reboots) say(ctx context.Context, node *unstructured.Unstructured) error {
	have, changes := node.GetAnnotations(), map[string]any{}
	if have[contract.BootIDAnnotation] != b.facts.BootID {
		changes[contract.BootIDAnnotation] = b.facts.BootID
	}
	pending, said := have[contract.RebootPendingAnnotation]
	switch signs := signs(b.facts); {
	case signs == "" && said:
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

// signs names the signs that Windows waits for a reboot, separated by commas. Files of ours are
// none: what is in use of them is replaced without a reboot.
func signs(facts winos.Facts) string {
	signs := slices.Clone(facts.RebootSigns)
	if slices.ContainsFunc(facts.ReplacedAtBoot,
		func(path string) bool { return !contract.Within(contract.DirK, path) }) {
		signs = append(signs, signRenames)
	}
	return strings.Join(signs, ",")
}
