package hns_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/lab/wine/hns"
)

// made returns the ID in the answer of a call.
func made(t *testing.T, s *hns.Service, words ...string) string {
	t.Helper()
	result, text := call(s, words...)
	if result != 0 {
		t.Fatalf("%v: %x %s", words, result, text)
	}
	return text
}

func TestALoadBalancerHasEndpointsAndOutlivesTheService(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hns.json")
	s := newService(t, path)
	network := made(t, s, "HcnCreateNetwork", "", overlay("n", "10.1.2.0/24", 4096, 0))
	remote := made(t, s, "HcnCreateEndpoint", network, `{"IpConfigurations":[{"IpAddress":"10.9.0.7"}],
		"MacAddress":"02-11-0a-09-00-07","Flags":1}`)
	if _, text := call(s, "HcnQueryEndpointProperties", remote); !strings.Contains(text, `"Flags":1`) ||
		!strings.Contains(text, "02-11-0a-09-00-07") {
		t.Errorf("the first endpoint is %s", text)
	}
	if result, text := call(s, "HcnCreateEndpoint", network,
		`{"IpConfigurations":[{"IpAddress":"10.9.0.7"}]}`); result != 0x803B002F {
		t.Errorf("creating a second endpoint with the same address: %x %s", result, text)
	}
	settings := `{"HostComputeEndpoints":["` + remote + `"],"SourceVIP":"10.1.2.3","FrontendVIPs":["172.30.0.9"],
		"PortMappings":[{"Protocol":6,"InternalPort":8080,"ExternalPort":80}],"SchemaVersion":{"Major":2,"Minor":0},
		"Flags":1}`
	id := made(t, s, "HcnCreateLoadBalancer", "", settings)
	s = newService(t, path)
	if _, text := call(s, "HcnEnumerateLoadBalancers", `{"Filter":"{\"ID\":\"`+id+`\"}"}`); text != `["`+id+`"]` {
		t.Errorf("the load balancers with this ID are %s", text)
	}
	programmed, err := hns.Programmed(path)
	if err != nil || len(programmed) != 1 || !reflect.DeepEqual(programmed[0].HostComputeEndpoints,
		[]string{"10.9.0.7"}) || programmed[0].PortMappings[0].ExternalPort != 80 {
		t.Errorf("the programmed load balancers are %+v, %v", programmed, err)
	}
	made(t, s, "HcnDeleteLoadBalancer", id)
	if result, _ := call(s, "HcnOpenLoadBalancer", id); result != 0x80070490 {
		t.Errorf("opening a deleted load balancer: %x", result)
	}
}

func TestALoadBalancerWithoutEndpointsIsRefused(t *testing.T) {
	t.Parallel()
	s := newService(t, filepath.Join(t.TempDir(), "hns.json"))
	for settings, want := range map[string]uint32{
		`{`:                           0x803B001B,
		`{"PortMappings":[{}]}`:       0x803B000D,
		`{"HostComputeEndpoints":[]}`: 0x803B000D,
		`{"HostComputeEndpoints":["0000"],"PortMappings":[{}]}`: 0x803B0002,
	} {
		if result, text := call(s, "HcnCreateLoadBalancer", "", settings); result != want {
			t.Errorf("%s: %x %s, want %x", settings, result, text, want)
		}
	}
}

// At its start, kube-proxy lists the policies of the older interface. The list must be answered and empty. Otherwise,
// kube-proxy does not start.
func TestThereAreNoPolicyListsOfTheOlderInterface(t *testing.T) {
	t.Parallel()
	s := newService(t, filepath.Join(t.TempDir(), "hns.json"))
	lists := []object{{}}
	if err := rest(t, s, "GET", "/policylists/", "", &lists); err != nil || len(lists) != 0 {
		t.Errorf("the policy lists are %v, %v", lists, err)
	}
}
