package winos

import (
	"errors"
	"reflect"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
)

func TestTheVersionOfWindowsIsDescribed(t *testing.T) {
	t.Parallel()
	server := version{CurrentBuildNumber: "20348", UBR: 2700, ProductName: "Windows Server 2022 Datacenter",
		ProductType: "ServerNT"}
	for name, test := range map[string]struct {
		registry version
		kernel   int
		want     Facts
		err      error
	}{
		"a server": {server, 20348, Facts{Build: 20348, UBR: 2700, ProductName: server.ProductName, Server: true}, nil},
		"the kernel knows better than the registry": {server, 26100,
			Facts{Build: 26100, UBR: 2700, ProductName: server.ProductName, Server: true}, nil},
		"the registry alone": {server, 0,
			Facts{Build: 20348, UBR: 2700, ProductName: server.ProductName, Server: true}, nil},
		"a domain controller is a server": {version{CurrentBuildNumber: "17763", ProductType: "LanmanNT"}, 17763,
			Facts{Build: 17763, Server: true}, nil},
		"a client": {version{CurrentBuildNumber: "22631", ProductType: "WinNT"}, 22631,
			Facts{Build: 22631}, nil},
		"no build anywhere":         {version{}, 0, Facts{}, ErrNotFound},
		"a build that is no number": {version{CurrentBuildNumber: "x"}, 0, Facts{}, ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got Facts
			if err := test.registry.describe(&got, test.kernel); !errors.Is(err, test.err) {
				t.Fatalf("got %v, want %v", err, test.err)
			}
			if test.err == nil && !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestABootKeepsItsNameWhenTheClockIsSet(t *testing.T) {
	t.Parallel()
	name := func(sequence uint32, bootTime, corrections int64) string {
		t.Helper()
		id, err := bootSigns{sequence: sequence, time: bootTime, corrections: corrections}.id()
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	const booted, correction = 134_351_230_275_000_000, 36_000_000_000
	if name(7, booted, 0) != name(7, booted+correction, 0) {
		t.Error("the clock matters although the boots are counted")
	}
	if name(7, booted, 0) == name(8, booted, 0) {
		t.Error("two boots have one name")
	}
	if name(0, booted, 0) != name(0, booted+correction, correction) {
		t.Error("a correction of the clock renames the boot")
	}
	if name(0, booted, 0) == name(0, booted+correction, 0) {
		t.Error("two boots have one name")
	}
	if _, err := (bootSigns{}).id(); !errors.Is(err, ErrNotFound) {
		t.Errorf("without anything to go by: %v; want ErrNotFound", err)
	}
}

// A reboot was never proven on a virtual machine whose counter does not advance.
func TestABootIsProvenByItsNumberOrByWhatLastsAsLongAsIt(t *testing.T) {
	t.Parallel()
	ids := map[string]bootSigns{}
	for _, boot := range []bootSigns{{sequence: 7, begun: 1}, {sequence: 8, begun: 1}, {sequence: 7, begun: 2},
		{begun: 1}, {begun: 2}, {sequence: 7}} {
		for _, clock := range []int64{1, 2} { // it does not matter
			boot.time = clock
			id, err := boot.id()
			if err != nil {
				t.Fatal(err)
			}
			before, known := ids[id]
			before.time = clock
			if known && before != boot {
				t.Errorf("%+v and %+v have one name: %s", before, boot, id)
			}
			ids[id] = boot
		}
	}
	if len(ids) != 6 {
		t.Errorf("%d names of 6 boots: %+v", len(ids), ids)
	}
}

func TestStatesOfFeaturesAreThoseThatMatter(t *testing.T) {
	t.Parallel()
	want := []FeatureState{
		FeatureAbsent, FeatureAbsent, FeatureAbsent, FeatureAbsent, FeatureEnabled, FeaturePending, FeatureEnabled,
		FeatureAbsent, FeatureAbsent,
	}
	for code, state := range want {
		if got := featureState(uint32(code)); got != state {
			t.Errorf("state %d is %s, want %s", code, got, state)
		}
	}
}

func TestAFeatureThatNeedsARebootIsNoFailure(t *testing.T) {
	t.Parallel()
	for code, want := range map[uint32]bool{0: false, 1: false, 3010: false, 0x80070bc2: false, 0x80070005: true,
		0x800f080c: true} {
		if got := failed(code); got != want {
			t.Errorf("%#x is a failure: %v", code, got)
		}
	}
}

// playedKey is a key whose time changes with each write. meanwhile runs once, before the step with the given
// distance.
type playedKey struct {
	number, time uint64
	counted      uint32
	lasting      bool
	steps        int
	meanwhile    func()
}

func (k *playedKey) counter() (uint32, error) { return k.counted, nil }

func (k *playedKey) setCounter(number uint32) error {
	k.counted = number
	return nil
}

func (k *playedKey) volatile() (bool, error) { return !k.lasting, nil }

func (k *playedKey) step() {
	if k.steps--; k.steps == 0 {
		k.meanwhile()
	}
}

func (k *playedKey) begun() (uint64, error) {
	k.step()
	return k.number, nil
}

func (k *playedKey) changed() (uint64, error) {
	k.step()
	return k.time, nil
}

func (k *playedKey) setBegun(number uint64) error {
	k.step()
	k.number = number
	k.time++
	return nil
}

func TestABootKeepsItsNameWhateverIsWrittenBesideIt(t *testing.T) {
	t.Parallel()
	read := func(key *playedKey) uint64 {
		t.Helper()
		begun, err := bootBegun(key)
		if err != nil {
			t.Fatal(err)
		}
		return begun
	}
	key := &playedKey{time: 18}
	first := read(key)
	key.time = 99 // another program writes below it
	if again := read(key); again != first || first != 18 {
		t.Errorf("boot %d is boot %d after a write to its key", first, again)
	}
	// Service and verbs look at the same time, and one may be killed on the way.
	for steps := 1; steps <= 5; steps++ {
		var other uint64
		key = &playedKey{time: 18, steps: steps}
		key.meanwhile = func() { other = read(key) }
		one := read(key)
		if last := read(key); one != last || other != 0 && other != one {
			t.Errorf("interrupted before step %d, one boot has the names %d, %d and %d", steps, one, other, last)
		}
		key = &playedKey{time: 18, steps: steps}
		key.meanwhile = func() { panic("killed") }
		func() {
			defer func() { _ = recover() }()
			read(key)
		}()
		key.steps = 0
		if one, last := read(key), read(key); one != 18 || last != 18 {
			t.Errorf("killed before step %d, one boot has the names %d and %d", steps, one, last)
		}
	}
}

// A host that hibernates keeps its boot: nothing that waits for a reboot has come about, and the service
// manager goes on with what it had. Whether Windows' counter advances then is written nowhere.
func TestABootKeepsItsNameOverHibernation(t *testing.T) {
	t.Parallel()
	name := func(key *playedKey, sequence uint32) string {
		t.Helper()
		number, begun, err := bootOf(key, sequence)
		if err != nil {
			t.Fatal(err)
		}
		id, err := bootSigns{sequence: number, begun: begun}.id()
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	for what, c := range map[string]struct {
		first, next *playedKey
		sequence    uint32
		same        bool
	}{
		"the counter advances, and the key is there": {&playedKey{time: 18}, nil, 8, true},
		"the counter stays, and the key is there":    {&playedKey{time: 18}, nil, 7, true},
		"a reboot": {&playedKey{time: 18}, &playedKey{time: 19}, 8, false},
		"a reboot with a counter that does not advance":   {&playedKey{time: 18}, &playedKey{time: 19}, 7, false},
		"a reboot, with the clock set back":               {&playedKey{time: 18}, &playedKey{time: 3}, 8, false},
		"a reboot, with the clock set back to that time":  {&playedKey{time: 18}, &playedKey{time: 18}, 8, false},
		"a reboot, with a key that somebody made to last": {&playedKey{time: 18, lasting: true}, nil, 8, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if c.next == nil {
				c.next = c.first
			}
			before, after := name(c.first, 7), name(c.next, c.sequence)
			if same := contract.SameBoot(before, after); same != c.same {
				t.Errorf("%s and %s are of one boot: %t", before, after, same)
			}
			if again := name(c.next, c.sequence); again != after {
				t.Errorf("%s is now %s", after, again)
			}
		})
	}
}

// The value of an earlier daemon lacks the counter.
func TestABootKeepsItsNameWhenTheDaemonIsUpgraded(t *testing.T) {
	t.Parallel()
	key := &playedKey{number: 18, time: 19}
	number, begun, err := bootOf(key, 7)
	if err != nil || number != 7 || begun != 18 || key.counted != 7 {
		t.Errorf("the boot is %d-%d, %v, and noted is %d", number, begun, err, key.counted)
	}
}
