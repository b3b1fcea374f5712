package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

// running returns a Machine with a host. The higher age is, the older is the Machine.
func running(name string, age int, edit func(*inventory.Machine)) inventory.Machine {
	m := inventory.Machine{
		Name: name, Namespace: contract.MachineAPINamespace, UID: types.UID("uid-" + name),
		CreatedAt: time.Unix(int64(age), 0), Phase: inventory.MachineRunning,
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
		ProviderID: "cloud://id-of-" + name,
	}
	if edit != nil {
		edit(&m)
	}
	return m
}

// made returns the instance that the operator creates from the Machine with this name.
func made(name string, edit func(*v1alpha1.WindowsInstance)) v1alpha1.WindowsInstance {
	reading := inventory.ReadMachine(running(name, 0, nil), "aws", nil)
	i := v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: projected(v1alpha1.WindowsInstanceSpec{RemovalPolicy: v1alpha1.RemovalClean}, *reading.Entry)}
	if edit != nil {
		edit(&i)
	}
	return i
}

func leaving(i *v1alpha1.WindowsInstance) { i.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)} }

func byHand(i *v1alpha1.WindowsInstance) { i.Spec.Source = nil }

func at(address string) func(*inventory.Machine) {
	return func(m *inventory.Machine) {
		m.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	}
}

// steps summarizes a plan as lists of names.
type steps struct {
	Create, Update, Leave, Pause, Resume, Waits []string
	Rejected                                    map[string]contract.Reason
}

func shorten(p plan) steps {
	s := steps{}
	for _, c := range p.create {
		s.Create = append(s.Create, c.machine.Name)
	}
	for _, i := range p.leave {
		s.Leave = append(s.Leave, i.Name)
	}
	for _, c := range p.change {
		spec := c.wanted.Spec
		spec.Paused = c.instance.Spec.Paused
		for list, is := range map[*[]string]bool{&s.Update: !equality.Semantic.DeepEqual(spec, c.instance.Spec),
			&s.Pause:  c.wanted.Spec.Paused && !c.instance.Spec.Paused,
			&s.Resume: c.instance.Spec.Paused && !c.wanted.Spec.Paused} {
			if is {
				*list = append(*list, c.instance.Name)
			}
		}
	}
	for name := range p.waits {
		s.Waits = append(s.Waits, name)
	}
	for _, f := range p.findings {
		if f.quiet {
			s.Waits = append(s.Waits, f.machine.Name)
			continue
		}
		if s.Rejected == nil {
			s.Rejected = map[string]contract.Reason{}
		}
		s.Rejected[f.machine.Name] = f.problem.Reason
	}
	slices.Sort(s.Waits)
	return s
}

func TestInstancesFollowMachines(t *testing.T) {
	t.Parallel()
	type machines = []inventory.Machine
	type instances = []v1alpha1.WindowsInstance
	one := func(edit func(*inventory.Machine)) machines { return machines{running("a", 1, edit)} }
	has := func(edit func(*v1alpha1.WindowsInstance)) instances { return instances{made("a", edit)} }
	deleting := func(m *inventory.Machine) { m.Deleting = true }
	ignored := func(m *inventory.Machine) { m.Ignored = true }
	anew := func(m *inventory.Machine) { m.UID, m.ProviderID = "other", strings.ToUpper(m.ProviderID) }
	for name, test := range map[string]struct {
		machines  machines
		instances instances
		want      steps
	}{
		"a host that was created while no operator was running": {one(nil), nil, steps{Create: []string{"a"}}},
		"nothing changed": {one(nil), has(nil), steps{}},
		"a host that is being made": {one(func(m *inventory.Machine) { m.Phase = "Provisioning" }),
			nil, steps{Waits: []string{"a"}}},
		"a node whose Machine failed stays": {
			one(func(m *inventory.Machine) { m.Phase = "Failed" }), has(nil),
			steps{Waits: []string{"a"}}},
		"a node whose Machine has no address now stays": {one(func(m *inventory.Machine) { m.Addresses = nil }),
			has(nil), steps{Waits: []string{"a"}}},
		"a node whose Machine can't be read stays": {
			one(func(m *inventory.Machine) { m.Port = "x" }), has(nil),
			steps{Rejected: map[string]contract.Reason{"a": contract.ReasonMachineAnnotationInvalid}},
		},
		"another address": {one(at("10.0.0.2")), has(nil), steps{Update: []string{"a"}}},
		"the cloud's name comes later": {one(nil),
			has(func(i *v1alpha1.WindowsInstance) { i.Spec.ProviderID = "" }), steps{Update: []string{"a"}}},
		"what the user set in it is the users": {one(nil),
			has(func(i *v1alpha1.WindowsInstance) { i.Spec.Paused, i.Spec.HostKey = true, "k k" }), steps{}},

		"the Machine is being deleted": {one(deleting), has(nil),
			steps{Leave: []string{"a"}, Waits: []string{"a"}}},
		"… and never had an instance": {one(deleting), nil, steps{}},
		"… and its instance leaves that way": {one(deleting),
			has(func(i *v1alpha1.WindowsInstance) { leaving(i); i.Spec.RemovalPolicy = v1alpha1.RemovalDiscard }),
			steps{Waits: []string{"a"}}},
		"… while its instance is being cleaned": {one(deleting), has(leaving),
			steps{Leave: []string{"a"}, Waits: []string{"a"}}},
		"… while its instance is removed by force": {one(deleting),
			has(func(i *v1alpha1.WindowsInstance) { leaving(i); i.Spec.RemovalPolicy = v1alpha1.RemovalForce }),
			steps{Waits: []string{"a"}}},
		"… and the one of its name is somebody's own": {one(deleting), has(byHand), steps{}},
		"the Machine is gone":                         {nil, has(nil), steps{Leave: []string{"a"}}},
		"… and its instance leaves":                   {nil, has(leaving), steps{Leave: []string{"a"}}},
		"an instance without a Machine is ignored":    {nil, has(byHand), steps{}},
		"another Machine took the name": {one(func(m *inventory.Machine) { m.UID, m.ProviderID = "other", "cloud://other" }),
			has(nil), steps{Leave: []string{"a"}, Waits: []string{"a"}}},
		"… whose host is not known yet": {one(func(m *inventory.Machine) { m.UID, m.ProviderID = "other", "" }),
			has(func(i *v1alpha1.WindowsInstance) { i.Spec.ProviderID = "" }),
			steps{Leave: []string{"a"}, Waits: []string{"a"}}},
		"the Machine was created again for the same host": {one(anew), has(nil), steps{Update: []string{"a"}}},
		"… and has no provider ID yet": {
			one(func(m *inventory.Machine) { anew(m); m.Phase, m.Addresses = "", nil }), has(nil),
			steps{Waits: []string{"a"}}},
		"… and is being deleted": {one(func(m *inventory.Machine) { anew(m); deleting(m) }), has(nil),
			steps{Leave: []string{"a"}, Waits: []string{"a"}}},
		"… and is ignored": {one(func(m *inventory.Machine) { anew(m); ignored(m) }), has(nil),
			steps{Pause: []string{"a"}, Waits: []string{"a"}}},
		"a user removes the instance of a Machine": {one(nil), has(leaving), steps{Waits: []string{"a"}}},

		"an ignored Machine":       {one(ignored), nil, steps{Waits: []string{"a"}}},
		"a node that is ignored":   {one(ignored), has(nil), steps{Pause: []string{"a"}, Waits: []string{"a"}}},
		"… and is paused":          {one(ignored), has(pause), steps{Waits: []string{"a"}}},
		"… and is ignored no more": {one(nil), has(pause), steps{Resume: []string{"a"}}},
		"… and leaves": {one(func(m *inventory.Machine) { m.Ignored, m.Deleting = true, true }),
			has(pause), steps{Leave: []string{"a"}, Waits: []string{"a"}}},
		"a pause of the user stays": {one(nil), has(func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true }),
			steps{}},

		"another owner's instance has the name": {
			one(at("10.0.0.7")), has(byHand),
			steps{Rejected: map[string]contract.Reason{"a": contract.ReasonMachineNameTaken}},
		},
		"another owner's instance has the address": {
			one(nil), instances{made("b", byHand)},
			steps{Rejected: map[string]contract.Reason{"a": contract.ReasonAddressDuplicate}},
		},
		"a host that is only checked gives way": {
			one(nil), instances{made("b", func(i *v1alpha1.WindowsInstance) { byHand(i); i.Spec.PreflightOnly = true })},
			steps{Create: []string{"a"}},
		},
		"the address is being given up": {one(nil),
			instances{made("b", func(i *v1alpha1.WindowsInstance) { byHand(i); leaving(i) })},
			steps{Waits: []string{"a"}}},
		"a Machine moves to the address of another": {
			machines{running("a", 1, nil), running("b", 2, nil)},
			instances{made("a", nil), made("b", func(i *v1alpha1.WindowsInstance) { i.Spec.Address = "10.0.0.2" })},
			steps{Rejected: map[string]contract.Reason{"b": contract.ReasonAddressDuplicate}},
		},
		"of two with one address the older wins": {
			machines{running("b", 2, nil), running("a", 3, nil), running("c", 1, nil)}, nil,
			steps{Create: []string{"c"}, Rejected: map[string]contract.Reason{"a": contract.ReasonAddressDuplicate,
				"b": contract.ReasonAddressDuplicate}},
		},
		"… but a Machine that is already a node keeps its instance": {
			machines{running("a", 2, nil), running("b", 1, nil)}, instances{made("a", nil)},
			steps{Rejected: map[string]contract.Reason{"b": contract.ReasonAddressDuplicate}},
		},
		"two Machines swap addresses": {
			machines{running("a", 1, at("10.0.0.2")), running("b", 2, nil)},
			instances{made("a", nil), made("b", func(i *v1alpha1.WindowsInstance) { i.Spec.Address = "10.0.0.2" })},
			steps{Update: []string{"a", "b"}},
		},
		"a Machine moves to an address that another leaves": {
			machines{running("a", 1, at("10.0.0.2")), running("b", 2, at("10.0.0.3")), running("c", 3, nil)},
			instances{made("a", nil), made("b", func(i *v1alpha1.WindowsInstance) { i.Spec.Address = "10.0.0.2" })},
			steps{Update: []string{"a", "b"}, Create: []string{"c"}},
		},
		"… or would leave if it could": {
			machines{running("a", 1, at("10.0.0.2")), running("b", 2, at("10.0.0.3"))},
			instances{made("a", nil), made("b", func(i *v1alpha1.WindowsInstance) { i.Spec.Address = "10.0.0.2" }),
				made("c", func(i *v1alpha1.WindowsInstance) { byHand(i); i.Spec.Address = "10.0.0.3" })},
			steps{Update: []string{"a"}, Rejected: map[string]contract.Reason{"b": contract.ReasonAddressDuplicate}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := shorten(decide(view{machines: test.machines, instances: test.instances, platform: "aws"}))
			if difference := cmp.Diff(test.want, got); difference != "" {
				t.Error(difference)
			}
		})
	}
}

func TestNothingIsMadeBeforeThePlatformIsKnown(t *testing.T) {
	t.Parallel()
	v := view{machines: []inventory.Machine{running("a", 1, nil),
		running("b", 1, func(m *inventory.Machine) { m.Deleting = true })},
		instances: []v1alpha1.WindowsInstance{made("b", nil)}}
	if got := shorten(decide(v)); len(got.Create) != 0 || len(got.Leave) != 1 {
		t.Errorf("plan %+v", got)
	}
}
