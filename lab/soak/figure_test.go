package soak

import (
	"strings"
	"testing"
)

func counted() Figures {
	return Figures{
		Operator: Process{Goroutines: 100, Descriptors: 30, Resident: 100 << 20},
		Lab:      Process{Goroutines: 1000, Descriptors: 200, Resident: 300 << 20},
		Stacks:   map[string]int{"a.run": 10},
		Objects:  map[string][]string{"secrets": {"a/1", "a/2"}},
		Hosts: map[string]Host{"win-001": {Files: []string{`c:\k\store\1`, `c:\var\log\kubelet\1`},
			Others: []string{"certificate 1"}, Open: 4, Processes: 9}},
	}
}

func TestALeakIsNamedFromWhatToWhat(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(f *Figures){
		"": func(*Figures) {},
		"goroutines of the operator grew from 100 to 200":   func(f *Figures) { f.Operator.Goroutines = 200 },
		"descriptors of the lab grew from 200 to 300":       func(f *Figures) { f.Lab.Descriptors = 300 },
		"resident bytes of the operator grew from":          func(f *Figures) { f.Operator.Resident *= 2 },
		"goroutines of the lab in a.run grew from 10 to 30": func(f *Figures) { f.Stacks["a.run"] = 30 },
		"goroutines of the lab in b.run grew from 0 to 30":  func(f *Figures) { f.Stacks["b.run"] = 30 },
		"objects secrets grew from 2 to 3: a/4": func(f *Figures) {
			f.Objects["secrets"] = []string{"a/1", "a/2", "a/4"}
		},
		`files of win-001 in c:\k\store grew from 1 to 2: c:\k\store\2`: func(f *Figures) {
			f.host(func(h *Host) { h.Files = append(h.Files, `c:\k\store\2`) })
		},
		"and the like of win-001 grew from 1 to 2: certificate 2": func(f *Figures) {
			f.host(func(h *Host) { h.Others = append(h.Others, "certificate 2") })
		},
		`files of win-001 in c:\k\cni\config grew from 0 to 2`: func(f *Figures) {
			f.host(func(h *Host) { h.Files = append(h.Files, `c:\k\cni\config\1`, `c:\k\cni\config\2`) })
		},
		"open handles of win-001 grew from 4 to 40": func(f *Figures) { f.host(func(h *Host) { h.Open = 40 }) },
		"processes of win-001 grew from 9 to 20":    func(f *Figures) { f.host(func(h *Host) { h.Processes = 20 }) },
	} {
		after := counted()
		change(&after)
		leaks := Leaks(counted(), after)
		if want == "" {
			if len(leaks) > 0 {
				t.Errorf("equal figures are reported as a leak: %v", leaks)
			}
			continue
		}
		if len(leaks) != 1 || !strings.Contains(leaks[0].String(), want) {
			t.Errorf("the leaks don't contain %q: %v", want, leaks)
		}
	}
}

func (f *Figures) host(change func(h *Host)) {
	h := f.Hosts["win-001"]
	change(&h)
	f.Hosts["win-001"] = h
}

func TestWhatComesAndGoesByItselfIsNoLeak(t *testing.T) {
	t.Parallel()
	after := counted()
	after.Operator = Process{Goroutines: 125, Descriptors: 45, Resident: 140 << 20}
	after.Stacks["a.run"] = 15
	after.Objects["secrets"] = []string{"a/1", "a/3"} // one object was replaced by another
	after.host(func(h *Host) {
		h.Files = []string{`c:\k\store\2`, `c:\k\cni\config\ovnkube-client-2026-01-01-00-00-00.pem`, `c:\var\log\kubelet\1`, `c:\var\log\kubelet\2`}
		h.Open, h.Processes = 6, 8
	})
	if leaks := Leaks(counted(), after); len(leaks) > 0 {
		t.Errorf("the figures are reported as leaks: %v", leaks)
	}
}

func TestGoroutinesAreCountedByTheFunctionThatTheyAreFor(t *testing.T) {
	t.Parallel()
	profile := `goroutine profile: total 5
3 @ 0x1 0x2
#	0x1	internal/poll.(*FD).Read+0x20	/go/fd.go:1
#	0x2	net/http.(*persistConn).readLoop+0x30	/go/transport.go:2

2 @ 0x3
#	0x3	main.main+0x10	/x/main.go:3

4 @ 0x4 0x5 0x6 0x7
#	0x4	net.read+0x1	/go/net.go:1
#	0x5	github.com/windows-nodes/wmco/internal/daemon/apply.(*Applier).fetch+0x1	/x/apply.go:3
#	0x6	github.com/windows-nodes/wmco/internal/daemon/reconcile.(*Loop).Run+0x1	/x/loop.go:3
#	0x7	github.com/windows-nodes/wmco/lab/sim.(*Machine).run+0x1	/x/spawn.go:3
`
	stacks := parseStacks(profile)
	daemon := stacks["github.com/windows-nodes/wmco/internal/daemon/reconcile.(*Loop).Run"]
	if len(stacks) != 3 || daemon != 4 || stacks["net/http.(*persistConn).readLoop"] != 3 || stacks["main.main"] != 2 {
		t.Errorf("%v", stacks)
	}
}
