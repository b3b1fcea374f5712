package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

func TestA60_WhatIsTakenOfFlannelsConfigurationIsWhatFlanneldOnWindowsTakes(t *testing.T) {
	t.Parallel()
	text := `{"Network": "10.244.7.1/16", "EnableNFTables": false, "another": [1],
		"Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789}}`
	want := blueprint.Flannel{Network: netip.MustParsePrefix("10.244.0.0/16"), VNI: 4096}
	if got, problem := parseFlannel(text); problem != nil || got != want {
		t.Errorf("%+v, %v", got, problem)
	}
}

func FuzzFlannel(f *testing.F) {
	f.Add(`{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","VNI":4096,"Port":4789}}`)
	f.Add(`{"Network":"10.244.0.0/16","EnableIPv6":true,"Backend":{"Type":"host-gw"}}`)
	f.Add(`{"network":"0.0.0.0/0","backend":{"TYPE":"VXLAN","vni":65535,"port":4789}}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		got, problem := parseFlannel(text)
		if problem != nil {
			if !slices.Contains([]contract.Reason{contract.ReasonFlannelUnsupported, contract.ReasonClusterFactsIncomplete}, problem.Reason) || len(problem.Detail) > 1000 {
				t.Errorf("%v", problem)
			}
			return
		}
		if !got.Network.IsValid() || !got.Network.Addr().Is4() || got.Network != got.Network.Masked() ||
			got.VNI < minVNI {
			t.Errorf("%q gives %+v", text, got)
		}
		again := fmt.Sprintf(`{"Network":"%s","Backend":{"Type":"vxlan","VNI":%d,"Port":4789}}`, got.Network, got.VNI)
		if other, problem := parseFlannel(again); problem != nil || other != got {
			t.Errorf("%s gives %+v, %v", again, other, problem)
		}
	})
}
