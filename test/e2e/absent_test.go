package e2e_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// A node joins with settings that differ from the defaults. The settings are replaced or deleted. The node must keep
// its revision. If the operator used the defaults, it would drain the node.
func TestA80_SettingsThatAreReplacedOrDeletedStayInForce(t *testing.T) {
	t.Parallel()
	o := options(1)
	o.Settings.Logging.Debug = true
	s := own(t, o)
	h := s.hosts(t, 1)[0]
	s.join(t, h)
	before, revision := s.config(t), s.instance(t, h).Status.Revision

	// kubectl replace --force deletes the object and creates another one.
	must(t, s.Client.Delete(t.Context(), before.DeepCopy()))
	pause(t, 3*time.Second)
	again := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: before.Name}, Spec: before.Spec}
	must(t, s.Client.Create(t.Context(), again))
	s.unchanged(t, h, revision)

	must(t, s.Client.Delete(t.Context(), again))
	s.await(t, "the settings to be restored", func(ctx context.Context) (bool, string, error) {
		s.unchanged(t, h, revision)
		config := &v1alpha1.WindowsMachineConfig{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: before.Name}, config)
		return err == nil && config.UID != again.UID && config.DeletionTimestamp.IsZero(), "", client.IgnoreNotFound(err)
	})
	if after := s.config(t); !equality.Semantic.DeepEqual(after.Spec, before.Spec) {
		t.Errorf("after the replacement, the settings are %+v, want %+v", after.Spec, before.Spec)
	}
	s.await(t, "an event about it", func(ctx context.Context) (bool, string, error) {
		list := &eventsv1.EventList{}
		err := s.Client.List(ctx, list)
		for _, e := range list.Items {
			if e.Regarding.Name == before.Name && e.Reason == "SettingsRestored" {
				return true, "", nil
			}
		}
		return false, fmt.Sprintf("%d events", len(list.Items)), err
	})
	s.unchanged(t, h, revision)
}

// unchanged checks that a node still serves at its revision.
func (s *stage) unchanged(t *testing.T, h *fleet.Host, revision string) {
	t.Helper()
	if node := s.node(t, h); node.Spec.Unschedulable || node.Annotations[contract.DesiredRevisionAnnotation] != revision {
		t.Errorf("%s: cordoned %t, desired revision %s, want %s", h.Name, node.Spec.Unschedulable,
			node.Annotations[contract.DesiredRevisionAnnotation], revision)
	}
}

// A user writes windows-instances from a file in UTF-16, as Windows PowerShell does. kubectl puts such a file into
// binaryData, so no entry can be read. The host must stay a node.
func TestA80_AnEntryThatIsWrittenInUTF16KeepsItsNode(t *testing.T) {
	s := sharedStage(t)
	h := s.hosts(t, 1)[0]
	s.join(t, h)
	key, _ := h.Entry()
	uid := s.instance(t, h).UID
	list := &corev1.ConfigMap{}
	at := client.ObjectKey{Namespace: contract.OperatorNamespace, Name: contract.InstancesConfigMap}
	must(t, s.Client.Get(t.Context(), at, list))
	utf16, err := base64.StdEncoding.DecodeString("//51AHMAZQByAG4AYQBtAGUAPQBBAGQAbQBpAG4AaQBzAHQAcgBhAHQAbwByAA0ACgA=")
	must(t, err)
	delete(list.Data, key)
	list.BinaryData = map[string][]byte{key: utf16}
	must(t, s.Client.Update(t.Context(), list))
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.write(t)
	})
	s.await(t, "the entry to be rejected", func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
		for _, r := range config.Status.RejectedEntries {
			if r.Key == key {
				return strings.Contains(r.Message, "UTF-8"), r.Message, nil
			}
		}
		return false, "", err
	})
	if i := s.instance(t, h); i.UID != uid || !i.DeletionTimestamp.IsZero() {
		t.Error("the operator removes the host although its entry is only unreadable")
	}
}
