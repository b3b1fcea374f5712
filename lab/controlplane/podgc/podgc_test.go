package podgc

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

func TestANodeIsAwayAfterTheQuarantine(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{pod("a", "here"), pod("b", "away"), pod("c", "")}
	here := []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "here"}}}
	both := append([]*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "away"}}}, here...)
	began := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var a absence
	for _, look := range []struct {
		after time.Duration
		nodes []*corev1.Node
		want  sets.Set[string]
	}{
		{0, here, sets.New[string]()},
		{quarantine - time.Second, here, sets.New[string]()},
		{quarantine, here, sets.New("away")},
		{2 * quarantine, both, sets.New[string]()},                   // the node came back,
		{2*quarantine + time.Second, here, sets.New[string]()},       // and was absent again:
		{3*quarantine + time.Second/2, here, sets.New[string]()},     // the quarantine starts
		{3*quarantine + time.Second, here, sets.New[string]("away")}, // again
	} {
		if got := a.see(began.Add(look.after), pods, look.nodes); !got.Equal(look.want) {
			t.Errorf("after %s: %v, want %v", look.after, sets.List(got), sets.List(look.want))
		}
	}
}

func TestWhichPodsGo(t *testing.T) {
	t.Parallel()
	ending := pod("ending-without-node", "")
	ending.DeletionTimestamp = &metav1.Time{}
	endingOnNode := pod("ending-on-node", "here")
	endingOnNode.DeletionTimestamp = &metav1.Time{}
	pods := []*corev1.Pod{ending, endingOnNode, pod("orphan", "away"), pod("waiting", ""), pod("running", "here")}
	got := doomed(pods, sets.New("away"))
	if len(got) != 2 || got[0] != ending || got[1] != pods[2] {
		t.Errorf("the doomed pods are %v", got)
	}
}
