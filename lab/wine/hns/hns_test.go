package hns_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/lab/wine/hns"
)

func newService(t *testing.T, path string) *hns.Service {
	t.Helper()
	s, err := hns.New(hns.Options{Path: path,
		Management: func() (netip.Addr, error) { return netip.MustParseAddr("10.0.0.5"), nil }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func call(s *hns.Service, words ...string) (result uint32, text string) {
	answer := s.Answer([]byte(strings.Join(words, "\x00") + "\x00"))
	return binary.LittleEndian.Uint32(answer), string(answer[4:])
}

// rest makes a call of the older interface.
func rest(t *testing.T, s *hns.Service, method, path, request string, output any) error {
	t.Helper()
	result, text := call(s, "HNSCall", method, path, request)
	var answer struct {
		Success bool
		Error   string
		Output  json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || result != 0 {
		t.Fatalf("%x %s: %v", result, text, err)
	}
	if !answer.Success {
		return fmt.Errorf("%s", answer.Error)
	}
	if output != nil {
		if err := json.Unmarshal(answer.Output, output); err != nil {
			t.Fatal(err)
		}
	}
	return nil
}

type object struct {
	ID, Name, ManagementIP, VirtualNetwork, IPAddress string
}

func TestBothInterfacesSeeTheSameObjectsAlsoAfterABoot(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hns.json")
	s := newService(t, path)
	var made, first, second object
	if err := rest(t, s, "POST", "/networks/",
		`{"Name":"n","Type":"Overlay","Subnets":[{"AddressPrefix":"10.1.2.0/24"}]}`, &made); err != nil {
		t.Fatal(err)
	}
	for point, name := range map[*object]string{&first: "a", &second: "b"} {
		if err := rest(t, s, "POST", "/endpoints/",
			`{"Name":"`+name+`","VirtualNetwork":"{`+strings.ToUpper(made.ID)+`}"}`, point); err != nil {
			t.Fatal(err)
		}
		if err := rest(t, s, "POST", "/endpoints/"+point.ID+"/attach", `{"SystemType":"Host"}`, nil); err != nil {
			t.Error(err)
		}
	}
	subnet := netip.MustParsePrefix("10.1.2.0/24")
	if made.ManagementIP != "10.0.0.5" || first.IPAddress == second.IPAddress ||
		!subnet.Contains(netip.MustParseAddr(first.IPAddress)) {
		t.Errorf("the created objects are %+v, %+v, %+v", made, first, second)
	}
	s = newService(t, path)
	result, text := call(s, "HcnEnumerateNetworks", `{"Filter":"{\"Name\":\"n\"}"}`)
	if result != 0 || text != `["`+made.ID+`"]` {
		t.Errorf("the networks with this name are %x %s", result, text)
	}
	if result, text = call(s, "HcnEnumerateNetworks", `{"Filter":"{\"Name\":\"other\"}"}`); result != 0 ||
		text != `[]` {
		t.Errorf("the networks with another name are %x %s", result, text)
	}
	if result, text = call(s, "HcnQueryNetworkProperties", made.ID); result != 0 ||
		!strings.Contains(text, `"IpAddressPrefix":"10.1.2.0/24"`) {
		t.Errorf("the network is %x %s", result, text)
	}
	if result, text = call(s, "HcnEnumerateEndpoints",
		`{"Filter":"{\"VirtualNetwork\":\"`+made.ID+`\"}"}`); result != 0 || strings.Count(text, `","`) != 1 {
		t.Errorf("its endpoints are %x %s", result, text)
	}
	if result, text = call(s, "HcnQueryEndpointProperties", first.ID); result != 0 ||
		!strings.Contains(text, first.IPAddress) {
		t.Errorf("an endpoint is %x %s", result, text)
	}
	if result, _ = call(s, "HcnDeleteEndpoint", first.ID); result != 0 {
		t.Errorf("deleting an endpoint: %x", result)
	}
	if result, _ = call(s, "HcnDeleteNetwork", made.ID); result != 0 {
		t.Errorf("deleting the network: %x", result)
	}
	var left []object
	if err := rest(t, s, "GET", "/endpoints/", "", &left); err != nil || len(left) != 0 {
		t.Errorf("after the deletion, the networks are %v, %v", left, err)
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	t.Parallel()
	s := newService(t, filepath.Join(t.TempDir(), "hns.json"))
	for function, want := range map[string]uint32{
		"HcnOpenNetwork": 0x803B0001, "HcnDeleteNetwork": 0x803B0001, "HcnOpenEndpoint": 0x803B0002,
		"HcnDeleteEndpoint": 0x803B0002, "HcnModifyEndpoint": 0x80004001, "HcnElse": 0x80004001,
	} {
		if result, _ := call(s, function, "0000"); result != want {
			t.Errorf("%s: %x, want %x", function, result, want)
		}
	}
	if result, _ := call(s, "HcnModifyNetwork", "0000",
		`{"ResourceType":"Policy","RequestType":"Add"}`); result != 0x803B0001 {
		t.Errorf("modifying: %x", result)
	}
	for _, c := range [][3]string{
		{"POST", "/endpoints/", `{"VirtualNetwork":"x"}`}, {"POST", "/endpoints/x/attach", ""},
		{"DELETE", "/networks/x", ""}, {"DELETE", "/endpoints/x", ""},
		{"POST", "/networks/", `{"Name":"n"}`},
		{"POST", "/networks/", `{"Name":"n","Subnets":[{"AddressPrefix":"fd00::/64"}]}`}, {"PUT", "/else/", ""},
	} {
		if err := rest(t, s, c[0], c[1], c[2], nil); err == nil {
			t.Errorf("the invalid call %v succeeded", c)
		}
	}
}

// overlay returns flannel's network in the form of the newer interface.
func overlay(name, subnet string, vni, flags int) string {
	return fmt.Sprintf(`{"Name":%q,"Type":"Overlay","Flags":%d,"SchemaVersion":{"Major":2,"Minor":0},"Ipams":[{`+
		`"Type":"Static","Subnets":[{"IpAddressPrefix":%q,"Policies":[{"Type":"VSID","Settings":{"IsolationId":%d}}],`+
		`"Routes":[{"NextHop":"10.244.3.1","DestinationPrefix":"0.0.0.0/0"}]}]}]}`, name, flags, subnet, vni)
}

func TestAnOverlayHasItsVNIInBothInterfacesAndPoliciesThatComeAndGo(t *testing.T) {
	t.Parallel()
	s := newService(t, filepath.Join(t.TempDir(), "hns.json"))
	result, id := call(s, "HcnCreateNetwork", "0000", overlay("flannel.4096", "10.244.3.0/24", 4096, 8))
	if result != 0 {
		t.Fatalf("%x %s", result, id)
	}
	expect := func(what string, parts ...string) {
		t.Helper()
		result, text := call(s, "HcnQueryNetworkProperties", id)
		for _, part := range parts {
			if result != 0 || !strings.Contains(text, part) {
				t.Errorf("%s: %x %s lacks %s", what, result, text, part)
			}
		}
	}
	expect("made", `"IsolationId":4096`, `"Flags":8`, `"ProviderAddress":"10.0.0.5"`, `"Address":"00-15-5D-`)
	var all []struct {
		Subnets []struct{ Policies []struct{ VSID int } }
	}
	if err := rest(t, s, "GET", "/networks/", "", &all); err != nil || len(all) != 1 ||
		all[0].Subnets[0].Policies[0].VSID != 4096 {
		t.Errorf("the older interface lists %+v: %v", all, err)
	}
	modify := func(request, policy string) uint32 {
		result, _ := call(s, "HcnModifyNetwork", id,
			`{"ResourceType":"Policy","RequestType":"`+request+`","Settings":{"Policies":[`+policy+`]}}`)
		return result
	}
	const route, own = `{"Type":"RemoteSubnetRoute","Settings":{"IsolationId":4096}}`, `{"Type":"HostRoute","Settings":{}}`
	for _, policy := range []string{route, own} {
		if result := modify("Add", policy); result != 0 {
			t.Errorf("adding %s: %x", policy, result)
		}
	}
	expect("with routes", route, own)
	for _, want := range []uint32{0, 0x803B0008} {
		if result := modify("Remove", route); result != want {
			t.Errorf("removing the policy: %x, want %x", result, want)
		}
	}
	expect("with one route", own)
	if _, text := call(s, "HcnQueryNetworkProperties", id); strings.Contains(text, route) {
		t.Errorf("the removed policy is still listed: %s", text)
	}
	if result := modify("Refresh", route); result != 0x80004001 {
		t.Errorf("a request that is not simulated: %x", result)
	}
}

func TestANetworkThatIsNotPersistentEndsWithTheBoot(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hns.json")
	s := newService(t, path)
	var lasting string
	for name, flags := range map[string]int{"10.244.3.0/24": 8, "10.244.4.0/24": 0} {
		result, id := call(s, "HcnCreateNetwork", "0000", overlay(name, name, 4096+flags, flags))
		if result != 0 {
			t.Fatalf("%x %s", result, id)
		}
		if err := rest(t, s, "POST", "/endpoints/", `{"Name":"a","VirtualNetwork":"`+id+`"}`, nil); err != nil {
			t.Fatal(err)
		}
		if flags == 0 {
			lasting = id
		}
	}
	s = newService(t, path)
	var left []object
	if err := rest(t, s, "GET", "/networks/", "", &left); err != nil || len(left) != 1 || left[0].ID != lasting {
		t.Errorf("the networks are %+v: %v", left, err)
	}
	if err := rest(t, s, "GET", "/endpoints/", "", &left); err != nil || len(left) != 1 ||
		left[0].VirtualNetwork != lasting {
		t.Errorf("the endpoints are %+v: %v", left, err)
	}
}

func TestARefusalHasTheCodeOfWindows(t *testing.T) {
	t.Parallel()
	s := newService(t, filepath.Join(t.TempDir(), "hns.json"))
	if result, text := call(s, "HcnCreateNetwork", "0000", overlay("n", "10.244.3.0/24", 4096, 8)); result != 0 {
		t.Fatalf("%x %s", result, text)
	}
	for what, c := range map[string]struct {
		settings string
		want     uint32
	}{
		"its name":      {overlay("n", "10.244.4.0/24", 4097, 8), 0x803B0010},
		"its VNI":       {overlay("o", "10.244.4.0/24", 4096, 8), 0x803B000D},
		"its addresses": {overlay("o", "10.244.3.128/25", 4097, 8), 0x803B0032},
		"VNI 0":         {overlay("o", "10.244.4.0/24", 0, 8), 0x803B000D},
		"VNI 4095":      {overlay("o", "10.244.4.0/24", 4095, 8), 0x803B000D},
		"no subnet":     {`{"Name":"o","Type":"Overlay"}`, 0x803B000A},
		"no document":   {`{`, 0x803B001B},
	} {
		result, text := call(s, "HcnCreateNetwork", "0000", c.settings)
		var record struct {
			Error     string
			ErrorCode uint32
		}
		if err := json.Unmarshal([]byte(text), &record); err != nil || result != c.want || record.ErrorCode != c.want ||
			record.Error == "" {
			t.Errorf("%s: %x %s, want %x", what, result, text, c.want)
		}
	}
	// The answer of the older interface must contain the error code: see
	// https://github.com/kubernetes-sigs/sig-windows-tools/pull/106.
	for _, vsid := range []string{"4095", "4096"} {
		_, text := call(s, "HNSCall", "POST", "/networks/", `{"Name":"n","Type":"Overlay","Subnets":[{"AddressPrefix":`+
			`"10.244.4.0/24","Policies":[{"Type":"VSID","VSID":`+vsid+`}]}]}`)
		want := `"ErrorCode":2151350288`
		if vsid == "4095" {
			want = `"ErrorCode":2151350285`
		}
		if !strings.Contains(text, want) || !strings.Contains(text, `"Success":false`) {
			t.Errorf("the older interface answers %s, want %s", text, want)
		}
	}
	var left []object
	if err := rest(t, s, "GET", "/networks/", "", &left); err != nil || len(left) != 1 {
		t.Errorf("the networks are %+v: %v", left, err)
	}
}
