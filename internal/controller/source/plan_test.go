package source

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

func projected(name string, edit func(*v1alpha1.WindowsInstance)) v1alpha1.WindowsInstance {
	i := v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.WindowsInstanceSpec{
			Address: name, Username: "a", Port: 22,
			Source: &v1alpha1.Source{Kind: v1alpha1.SourceConfigMap, Name: name},
		},
	}
	if edit != nil {
		edit(&i)
	}
	return i
}

func TestInstancesFollowEntries(t *testing.T) {
	t.Parallel()
	bad := []inventory.Rejected{{Key: "h", Name: "h",
		Problem: contract.NewProblem(contract.ReasonEntryMalformed, "no")}}
	type steps struct{ Create, Update, Remove, Rejected int }
	for name, test := range map[string]struct {
		entries   []inventory.Entry
		rejected  []inventory.Rejected
		instances []v1alpha1.WindowsInstance
		want      steps
	}{
		"a new entry": {[]inventory.Entry{{Name: "h", Address: "h", User: "a", Port: 22}}, nil, nil,
			steps{Create: 1}},
		"nothing changed": {[]inventory.Entry{{Name: "h", Address: "h", User: "a", Port: 22}}, nil,
			[]v1alpha1.WindowsInstance{projected("h", nil)}, steps{}},
		"another user": {[]inventory.Entry{{Name: "h", Address: "h", User: "b", Port: 22}}, nil,
			[]v1alpha1.WindowsInstance{projected("h", nil)}, steps{Update: 1}},
		"another instance has the address": {[]inventory.Entry{{Name: "h", Address: "H", User: "a", Port: 22}}, nil,
			[]v1alpha1.WindowsInstance{projected("win-abc", func(i *v1alpha1.WindowsInstance) {
				i.Spec.Address, i.Spec.Source = "h", &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: "win-abc"}
			})}, steps{Rejected: 1}},
		"a host that is only checked gives way": {[]inventory.Entry{{Name: "h", Address: "H", User: "a", Port: 22}}, nil,
			[]v1alpha1.WindowsInstance{projected("check", func(i *v1alpha1.WindowsInstance) {
				i.Spec.Address, i.Spec.Source, i.Spec.PreflightOnly = "h", nil, true
			})}, steps{Create: 1}},
		"the entry is gone": {nil, nil, []v1alpha1.WindowsInstance{projected("h", nil)}, steps{Remove: 1}},
		"the entry can't be read any more, so its node stays": {nil, bad,
			[]v1alpha1.WindowsInstance{projected("h", nil)}, steps{Rejected: 1}},
		"a user's own instance is ignored": {nil, nil,
			[]v1alpha1.WindowsInstance{projected("h", func(i *v1alpha1.WindowsInstance) { i.Spec.Source = nil })},
			steps{}},
		"an entry meets an instance of a user": {[]inventory.Entry{{Name: "h", Address: "h", User: "a", Port: 22}}, nil,
			[]v1alpha1.WindowsInstance{projected("h", func(i *v1alpha1.WindowsInstance) { i.Spec.Source = nil })},
			steps{Rejected: 1}},
		"an entry is back while its instance still leaves": {[]inventory.Entry{{Name: "h", Address: "h", User: "a",
			Port: 22}}, nil,
			[]v1alpha1.WindowsInstance{projected("h", func(i *v1alpha1.WindowsInstance) {
				i.DeletionTimestamp = &metav1.Time{}
				now := metav1.Now()
				i.DeletionTimestamp = &now
			})}, steps{}},
		"an entry is corrected while its instance leaves": {[]inventory.Entry{{Name: "h", Address: "h", User: "b",
			Port: 22}}, nil,
			[]v1alpha1.WindowsInstance{projected("h", func(i *v1alpha1.WindowsInstance) {
				now := metav1.Now()
				i.DeletionTimestamp = &now
			})}, steps{Update: 1}},
		"a host key that the user set by hand stays": {[]inventory.Entry{{Name: "h", Address: "h", User: "a",
			Port: 22}}, nil,
			[]v1alpha1.WindowsInstance{projected("h",
				func(i *v1alpha1.WindowsInstance) { i.Spec.HostKey = "ssh-ed25519 AAAA" })}, steps{}},
		"a host key that the entry gives counts": {[]inventory.Entry{{Name: "h", Address: "h", User: "a", Port: 22,
			HostKey: "ssh-ed25519 BBBB"}}, nil,
			[]v1alpha1.WindowsInstance{projected("h",
				func(i *v1alpha1.WindowsInstance) { i.Spec.HostKey = "ssh-ed25519 AAAA" })}, steps{Update: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := decide(test.entries, test.rejected, test.instances)
			got := steps{len(p.create), len(p.update), len(p.remove), len(p.rejected)}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
