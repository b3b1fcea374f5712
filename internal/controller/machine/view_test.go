package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/policy"
)

// An ignored Machine doesn't become a node, so it doesn't count as missing from its set.
func TestMachinesThatTheOperatorIgnoresAreNotMissedInTheirSet(t *testing.T) {
	t.Parallel()
	hosts := func(names ...string) (all []policy.SetHost) {
		for _, name := range names {
			all = append(all, policy.SetHost{Name: name})
		}
		return all
	}
	ignored := func(m *machinev1beta1.Machine) { m.Labels[contract.IgnoreLabel] = "true" }
	for name, test := range map[string]struct {
		change func(y *yard)
		want   *policy.Set
	}{
		"none": {func(*yard) {}, &policy.Set{Replicas: 3, Hosts: hosts("m0", "m1", "m2")}},
		"one":  {func(y *yard) { y.changeMachine("m0", ignored) }, &policy.Set{Replicas: 2, Hosts: hosts("m1", "m2")}},
		"a Machine that is being deleted and replaced": {func(y *yard) {
			y.changeMachine("m0", func(m *machinev1beta1.Machine) {
				ignored(m)
				m.Finalizers = []string{"example.com/cloud"}
			})
			y.gone("m0")
		}, &policy.Set{Replicas: 3, Hosts: append([]policy.SetHost{{Name: "m0", Leaving: true}}, hosts("m1", "m2")...)}},
		"more Machines than replicas": {func(y *yard) {
			y.scale(1)
			y.changeMachine("m0", ignored)
			y.changeMachine("m1", ignored)
		}, &policy.Set{Replicas: 0, Hosts: hosts("m2")}},
		"all, by the template of their set": {func(y *yard) {
			y.changeSet(func(s *machinev1beta1.MachineSet) {
				s.Spec.Template.Labels = map[string]string{contract.MachineOSLabel: contract.OSIDWindows,
					contract.IgnoreLabel: "true"}
			})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, 3)
			test.change(y)
			for _, live := range []bool{false, true} {
				got, err := y.options.View.Sets(t.Context(), live)
				if err != nil {
					t.Fatal(err)
				}
				var want []policy.Set
				if test.want != nil {
					one := *test.want
					one.UID, one.Name = types.UID("set"), "MachineSet set"
					want = []policy.Set{one}
				}
				if difference := cmp.Diff(want, got); difference != "" {
					t.Error(difference)
				}
			}
		})
	}
}

func TestA83_AMachineWhoseNameIsRefusedIsNoHostThatIsMissing(t *testing.T) {
	t.Parallel()
	y := newYard(t, 3)
	view := y.options.View
	view.refuse([]finding{
		{machine: inventory.Machine{Name: "m0"},
			problem: contract.NewProblem(contract.ReasonMachineNameInvalid, "it is too long")},
		{machine: inventory.Machine{Name: "m1"},
			problem: contract.NewProblem(contract.ReasonMachineAddressUnusable, "its name has yet to resolve")},
	})
	sets, err := view.Sets(t.Context(), true)
	if err != nil || len(sets) != 1 {
		t.Fatal(sets, err)
	}
	for _, host := range sets[0].Hosts {
		if want := host.Name == "m0" && host.Node == ""; host.Refused != want {
			t.Errorf("%+v", host)
		}
	}
}
