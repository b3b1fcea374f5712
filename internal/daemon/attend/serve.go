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
	// The host gives up if the Secret is missing for longer than Gone, or if the host is refused for longer than
	// Refused.
	Gone, Refused time.Duration
}

const (
	beat         = contract.CallBeatSeconds * time.Second
	retry        = 5 * time.Second
	gone         = time.Minute
	refused      = 24 * time.Hour
	patchTimeout = 15 * time.Second
	// `reports` is the maximum number of attempts to report an answer. After the last attempt, the operator no longer
	// waits for the answer.
	reports = 12
)

type service struct {
	Options
	rpcDir
	host   contract.Attendance
	secret dynamic.ResourceInterface
	watch  *apiclient.Watch
	wake   chan struct{}
	boot   string
}

// Serve carries out calls until ctx ends or the attendance ends. The attendance ends if the WindowsInstance was
// deleted, or if the API server refuses the host for too long. Then Serve removes the service, and the caller must
// close the log and then call Clear.
func Serve(ctx context.Context, o Options) error {
	o.Pace = Pace{Beat: cmp.Or(o.Pace.Beat, beat), Retry: cmp.Or(o.Pace.Retry, retry), Gone: cmp.Or(o.Pace.Gone, gone),
		Refused: cmp.Or(o.Pace.Refused, refused)}
	facts, err := o.Host.System.Facts(ctx)
	if err != nil {
		return fmt.Errorf("reading the host's facts: %w", err)
	}
	s := &service{Options: o, rpcDir: rpcDir{o.Host.Files, o.Dir}, wake: make(chan struct{}, 1),
		boot: facts.BootID}
	err = s.read(contract.HostStateFile, &s.host)
	if errors.Is(err, fs.ErrNotExist) {
		return s.leave(ctx, "there is nothing to attend") // an earlier removal was interrupted
	}
	if err != nil {
		return err
	}
	client, err := apiclient.Connect(s.options(s.host, s.Version))
	if err != nil {
		return err
	}
	defer client.Close()
	s.secret = client.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).
		Namespace(s.host.Namespace)
	s.watch = apiclient.NewWatch(s.secret, contract.CallSecretPrefix+s.host.UID, o.Clock)
	s.watch.Wake(s.wake)
	renewer := apiclient.Renewer{Identity: s.identity(s.host.UID), Client: client.Client,
		Renewed: client.Reload, Clock: o.Clock}
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { s.watch.Run(ctx) })
	all.Go(func() { renewer.Run(ctx) })
	defer all.Wait()
	defer stop()
	return s.attend(ctx)
}

func (s *service) attend(ctx context.Context) error {
	well := s.Clock.Now() // when the API server last accepted this host
	for ctx.Err() == nil {
		object, known := s.watch.Get()
		err := s.watch.Err()
		switch lasts := s.Clock.Now().Sub(well); {
		case known && object == nil && (err == nil || isRefusal(err)):
			if lasts > s.Pace.Gone {
				return s.leave(ctx, "the WindowsInstance was deleted")
			}
		case isRefusal(err):
			if lasts > s.Pace.Refused {
				return s.leave(ctx, "the API server refuses this host: "+err.Error())
			}
		default:
			if err == nil && object != nil {
				s.carryOn(ctx, object)
			}
			well = s.Clock.Now()
		}
		loop.Wait(ctx, s.Clock, s.wake, loop.Jitter(s.Pace.Retry))
	}
	return nil
}

func isRefusal(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// carryOn carries out the call in the Secret unless the host has already answered it, and reports the answer. After
// each boot, it reports the boot ID first.
func (s *service) carryOn(ctx context.Context, object *unstructured.Unstructured) {
	var self contract.CallHost
	if err := field(object, contract.CallHostField, &self); err != nil || self.BootID != s.boot {
		self.BootID = s.boot
		if s.report(ctx, self) != nil {
			return
		}
	}
	var call contract.Call
	err := field(object, contract.CallRequestField, &call)
	if call.ID == "" || err != nil || self.Answered(call.ID) {
		s.logError(ctx, "a call can't be read", err)
		return
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("call", call.ID, "verb", call.Verb)
	log.Info("a call begins")
	self = contract.CallHost{BootID: s.boot, Call: call.ID}
	if self.Answer, err = s.carryOut(ctx, call); err != nil {
		self.Fault = err.Error()
	}
	log.Info("a call ended", "fault", self.Fault)
	for range reports {
		if err = s.report(ctx, self); err == nil || ctx.Err() != nil {
			return
		}
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err) {
			self.Answer, self.Fault = nil, "the API server does not accept the answer"
		}
		loop.Wait(ctx, s.Clock, nil, loop.Jitter(s.Pace.Retry))
	}
}

func (s *service) current() string {
	var call contract.Call
	if object, _ := s.watch.Get(); object != nil {
		_ = field(object, contract.CallRequestField, &call) // the ID of an unreadable call is different or empty
	}
	return call.ID
}

// carryOut runs a call, and sends signs of life while the call runs. If the Secret no longer contains the call, the
// operator no longer waits for it, so carryOut stops the call. Exception: a cleanup is not stopped.
func (s *service) carryOut(ctx context.Context, call contract.Call) (answer []byte, err error) {
	running, end := context.WithCancel(ctx)
	defer end()
	defer loop.Signal(s.wake)
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer, err = s.run(running, call)
	}()
	for self := (contract.CallHost{BootID: s.boot, Call: call.ID}); ; {
		select {
		case <-done:
			return answer, err
		case <-s.wake:
			if call.Verb != contract.VerbCleanup && s.current() != call.ID {
				end()
			}
		case <-s.Clock.After(s.Pace.Beat):
			self.Beat++
			_ = s.report(ctx, self) // if this report fails, the next one follows soon
		}
	}
}

func (s *service) report(ctx context.Context, self contract.CallHost) error {
	content, err := json.Marshal(self)
	if err == nil {
		content, err = json.Marshal(map[string]any{"data": map[string][]byte{contract.CallHostField: content}})
	}
	if err == nil {
		before, _ := s.watch.Get()
		bounded, cancel := context.WithTimeout(ctx, patchTimeout)
		defer cancel()
		var after *unstructured.Unstructured
		if after, err = s.secret.Patch(bounded, contract.CallSecretPrefix+s.host.UID, types.MergePatchType, content,
			metav1.PatchOptions{FieldManager: contract.ServiceAttend}); err == nil {
			s.watch.Replace(before, after)
		}
	}
	s.logError(ctx, "the host can't report", err)
	return err
}

// field decodes a field of a Secret, if the Secret has this field.
func field(secret *unstructured.Unstructured, name string, into any) error {
	text, found, err := unstructured.NestedString(secret.Object, "data", name)
	if !found || err != nil {
		return err
	}
	content, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return errors.New(name + " is not valid JSON") // the decoder's error may quote the content
	}
	return nil
}

func (s *service) logError(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Info(what, "detail", err.Error())
	}
}
