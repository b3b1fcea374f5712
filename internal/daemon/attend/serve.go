package attend

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
)

// Pace is how long the service waits.
type Pace struct {
	// Beat is the time between two signs of life during a call. Retry is the pause after a failure.
	Beat, Retry time.Duration
	// The host gives up if the Secret has been missing for longer than Gone, or if the API server has refused the host
	// for longer than Refused.
	Gone, Refused time.Duration
}

const (
	beat    = contract.CallBeatSeconds * time.Second
	retry   = 5 * time.Second
	gone    = time.Minute
	refused = 24 * time.Hour
	// patchTimeout bounds a write to the Secret.
	patchTimeout = 15 * time.Second
)

// service is the running service.
type service struct {
	Options
	rpcDir
	record record
	secret dynamic.ResourceInterface
	watch  *apiclient.Watch
	wake   chan struct{}
	boot   string
	// self is the host's report, which belongs into CallHostField of the Secret. greeted is the UID of the Secret to
	// which self belongs. unsent reports that the Secret doesn't contain self yet.
	self    contract.CallHost
	greeted types.UID
	unsent  bool
	shown   string
}

// Serve gets the host's certificate and carries out calls until ctx ends or the attendance ends. The attendance ends if
// the WindowsInstance was deleted, or if the API server refuses the host for too long. Then Serve removes the service.
// The result `over` reports that the caller must call Clear after it has closed the log.
func Serve(ctx context.Context, o Options) (over bool, err error) {
	o.Pace = Pace{Beat: cmp.Or(o.Pace.Beat, beat), Retry: cmp.Or(o.Pace.Retry, retry), Gone: cmp.Or(o.Pace.Gone, gone),
		Refused: cmp.Or(o.Pace.Refused, refused)}
	facts, err := o.Host.System.Facts(ctx)
	if err != nil {
		return false, fmt.Errorf("reading the host's facts: %w", err)
	}
	s := &service{Options: o, rpcDir: rpcDir{o.Host.Files, o.Dir}, wake: make(chan struct{}, 1),
		boot: facts.BootID}
	err = s.read(contract.HostStateFile, &s.record)
	if errors.Is(err, fs.ErrNotExist) {
		return true, s.leave(ctx, "there is nothing to attend") // an earlier removal was interrupted
	}
	if err != nil {
		return false, err
	}
	s.tidy(ctx, "")
	if why, err := s.enrol(ctx); why != "" || err != nil || ctx.Err() != nil {
		if why != "" {
			return false, s.leave(ctx, why) // keep the directory, because Attend may still read the progress
		}
		return false, err
	}
	client, err := apiclient.Connect(s.options(""))
	if err != nil {
		return false, err
	}
	defer client.Close()
	s.secret = client.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).
		Namespace(s.record.Namespace)
	s.watch = apiclient.NewWatch(s.secret, contract.CallSecretPrefix+s.record.UID, o.Clock)
	s.watch.Wake(s.wake)
	renewer := apiclient.Renewer{Identity: s.identity(s.record.UID), Client: client.Client,
		Lifetime: certificateLifetime,
		Renewed:  client.Reload, Clock: o.Clock}
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { s.watch.Run(ctx) })
	all.Go(func() { renewer.Run(ctx) })
	defer all.Wait()
	defer stop()
	return s.attend(ctx)
}

// attend carries out calls until ctx or the attendance ends.
func (s *service) attend(ctx context.Context) (over bool, err error) {
	s.show(ctx, progress{Text: "This host has its certificate."})
	var missing, refusal since
	for ctx.Err() == nil {
		object, known := s.watch.Get()
		err := s.watch.Err()
		switch {
		case missing.longer(s.Clock.Now(), known && object == nil && (err == nil || isRefusal(err)), s.Pace.Gone):
			return true, s.leave(ctx, "the WindowsInstance was deleted")
		case refusal.longer(s.Clock.Now(), isRefusal(err), s.Pace.Refused):
			return true, s.leave(ctx, "the API server refuses this host: "+err.Error())
		case err != nil:
			text, _ := explain(err)
			s.show(ctx, progress{Text: text})
		case object != nil:
			s.carryOn(ctx, object)
		}
		loop.Wait(ctx, s.Clock, s.wake, loop.Jitter(s.Pace.Retry))
	}
	return false, nil
}

// since is the time when a condition began, or zero.
type since time.Time

func (s *since) longer(now time.Time, is bool, limit time.Duration) bool {
	switch begun := time.Time(*s); {
	case !is:
		*s = since{}
	case begun.IsZero():
		*s = since(now)
	default:
		return now.Sub(begun) > limit
	}
	return false
}

func isRefusal(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// carryOn reports the boot ID, carries out the call in the Secret unless the host has already answered, and reports the
// answer. If a report fails, the next carryOn sends it again.
func (s *service) carryOn(ctx context.Context, object *unstructured.Unstructured) {
	if s.greeted != object.GetUID() {
		s.self, s.greeted = contract.CallHost{}, object.GetUID()
		_, err := field(object, contract.CallHostField, &s.self)
		s.unsent = err != nil || s.self.BootID != s.boot
		s.self.BootID = s.boot
	}
	if s.unsent && !s.report(ctx) {
		return
	}
	s.show(ctx, progress{Text: "This host carries out the operator's calls. The rest of the join happens from the " +
		"cluster; look at the WindowsInstance there.", Attends: true})
	var call contract.Call
	found, err := field(object, contract.CallRequestField, &call)
	if !found || err != nil || s.self.Answered(call.ID) {
		s.logError(ctx, "a call can't be read", err)
		return
	}
	s.self.Call, s.self.Answer, s.self.Fault = call.ID, nil, ""
	answer, err := s.carryOut(ctx, call)
	if s.self.Answer = answer; err != nil {
		s.self.Fault = err.Error()
	}
	s.report(ctx)
}

// current returns the ID of the call in the Secret, or an empty string.
func (s *service) current() string {
	var call contract.Call
	if object, _ := s.watch.Get(); object != nil {
		_, _ = field(object, contract.CallRequestField, &call)
	}
	return call.ID
}

// carryOut runs a call, and sends signs of life while the call runs. If the Secret no longer contains the call, the
// operator has given it up, so carryOut stops the call. Exception: a cleanup is not stopped.
func (s *service) carryOut(ctx context.Context, call contract.Call) (answer []byte, err error) {
	running, end := context.WithCancel(ctx)
	defer end()
	defer loop.Signal(s.wake)
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer, err = s.answer(running, call)
	}()
	for {
		select {
		case <-done:
			return answer, err
		case <-s.wake:
			if call.Verb != contract.VerbCleanup && s.current() != call.ID {
				end()
			}
		case <-s.Clock.After(s.Pace.Beat):
			s.self.Beat++
			s.report(ctx)
		}
	}
}

// report writes the host's report to the Secret. If the API server rejects the answer in it, report replaces the answer
// with a fault, which the next report sends.
func (s *service) report(ctx context.Context) (ok bool) {
	content, err := json.Marshal(s.self)
	if err == nil {
		content, err = json.Marshal(map[string]any{"data": map[string][]byte{contract.CallHostField: content}})
	}
	if err == nil {
		bounded, cancel := context.WithTimeout(ctx, patchTimeout)
		defer cancel()
		_, err = s.secret.Patch(bounded, contract.CallSecretPrefix+s.record.UID, types.MergePatchType, content,
			metav1.PatchOptions{FieldManager: contract.ServiceAttend})
	}
	if len(s.self.Answer) > 0 &&
		(apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err)) {
		s.self.Answer, s.self.Fault = nil, "the API server does not accept the answer"
	}
	s.logError(ctx, "the host can't report", err)
	s.unsent = err != nil
	return err == nil
}

// field decodes a field of a Secret.
func field(secret *unstructured.Unstructured, name string, into any) (found bool, err error) {
	text, found, err := unstructured.NestedString(secret.Object, "data", name)
	if !found || err != nil {
		return false, err
	}
	content, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return false, errors.New(name + " is not valid JSON") // the decoder's error may quote it
	}
	return true, nil
}

// show writes the progress for Attend. A failure is harmless, because only Attend reads the progress.
func (s *service) show(ctx context.Context, p progress) {
	if p.Text == s.shown {
		return
	}
	s.shown = p.Text
	logr.FromContextOrDiscard(ctx).Info("progress", "text", p.Text)
	s.logError(ctx, "the progress can't be written", s.write(progressFile, p))
}

// logError logs an error. It ignores nil.
func (s *service) logError(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Info(what, "detail", err.Error())
	}
}
