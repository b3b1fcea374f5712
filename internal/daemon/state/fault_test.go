package state_test

import (
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func TestFaultsAreTheSameByWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	fault := func(reason contract.Reason, about, detail string) state.Fault {
		return state.Fault{Problem: contract.Problem{Reason: reason, Detail: detail}, About: about}
	}
	proxy := fault(contract.ReasonServiceFailed, "kube-proxy", "it ends")
	for name, c := range map[string]struct {
		other state.Fault
		want  bool
	}{
		"in other words":                {fault(contract.ReasonServiceFailed, "Kube-Proxy", "it does not run"), true},
		"about another thing":           {fault(contract.ReasonServiceFailed, "kubelet", "it ends"), false},
		"for another reason":            {fault(contract.ReasonFileFailed, "kube-proxy", "it ends"), false},
		"about an unknown subject":      {fault(contract.ReasonServiceFailed, "", "it ends"), true},
		"about another unknown subject": {fault(contract.ReasonServiceFailed, "", "kubelet ends"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if proxy.IsSame(c.other) != c.want || c.other.IsSame(proxy) != c.want {
				t.Errorf("%+v is %+v: not %t", proxy, c.other, c.want)
			}
		})
	}
}

func TestFaultsThatAnOlderDaemonWroteAreRead(t *testing.T) {
	t.Parallel()
	f := stateFiles(t)
	if err := winos.WriteFile(f, contract.PathState,
		strings.NewReader(`{"faults": [{"reason": "ServiceFailed", "detail": "it ends"}]}`),
		winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	want := state.Fault{Problem: contract.Problem{Reason: contract.ReasonServiceFailed, Detail: "it ends"}}
	if have := open(t, f).Faults; len(have) != 1 || have[0] != want {
		t.Errorf("got %+v", have)
	}
}
