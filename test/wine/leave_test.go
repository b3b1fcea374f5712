//go:build linux

package wine_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

func TestA32_AHostThatLeavesIsAsItWasBeforeAndMayComeBack(t *testing.T) {
	s := shared
	h := s.host(leaver)
	host := windows(t, h)
	all, err := host.Environment.All(t.Context())
	if err != nil || all[proxyVariable] != proxyOfCluster {
		t.Fatalf("the variable is %q, %v; want the cluster's", all[proxyVariable], err)
	}
	if left := scene.Left(h); len(left) < 20 {
		t.Fatalf("joining changed only %q, so this test could not fail", left)
	}
	others := slices.DeleteFunc(slices.Clone(s.Fleet.Hosts), func(other *fleet.Host) bool { return other == h })
	if err = s.List(t.Context(), others...); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err = s.WaitGone(t.Context(), soon, h); err != nil {
		t.Fatal(err)
	}
	t.Logf("it was gone after %.1f s", time.Since(began).Seconds())
	if left := scene.Left(h); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	if all, err = host.Environment.All(t.Context()); err != nil || all[proxyVariable] != proxyBefore {
		t.Errorf("the variable is %q, %v; want what it was before", all[proxyVariable], err)
	}
	logs, err := os.ReadDir(machine(h).Path(contract.DirLog))
	if err != nil || len(logs) == 0 {
		t.Errorf("the logs were not kept: %v, %v", logs, err)
	}
	for _, service := range []string{contract.ServiceContainerd, contract.ServiceKubelet, contract.ServiceDaemon} {
		if _, err = host.Services.Get(t.Context(), service); err == nil {
			t.Errorf("service %s is there", service)
		}
	}
	if err = s.List(t.Context(), s.Fleet.Hosts...); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	if err = s.WaitReady(t.Context(), soon, h); err != nil {
		t.Fatal(err)
	}
	t.Logf("it was back after %.1f s", time.Since(began).Seconds())
}
