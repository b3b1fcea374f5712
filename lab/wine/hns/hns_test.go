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
		t.Errorf("made %+v, %+v, %+v", made, first, second)
	}
	s = newService(t, path)
	result, text := call(s, "HcnEnumerateNetworks", `{"Filter":"{\"Name\":\"n\"}"}`)
	if result != 0 || text != `["`+made.ID+`"]` {
		t.Errorf("networks of that name: %x %s", result, text)
	}
	if result, text = call(s, "HcnEnumerateNetworks", `{"Filter":"{\"Name\":\"other\"}"}`); result != 0 ||
		text != `[]` {
		t.Errorf("networks of another name: %x %s", result, text)
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
		t.Errorf("left %v, %v", left, err)
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	t.Parallel()
	s := newService(t, filepath.Join(t.TempDir(), "hns.json"))
	for function, want := range map[string]uint32{
		"HcnOpenNetwork": 0x803B0001, "HcnDeleteNetwork": 0x803B0001, "HcnOpenEndpoint": 0x803B0002,
		"HcnDeleteEndpoint": 0x803B0002, "HcnElse": 0x80004001,
	} {
		if result, _ := call(s, function, "0000"); result != want {
			t.Errorf("%s: %x, want %x", function, result, want)
		}
	}
	for _, c := range [][3]string{
		{"POST", "/endpoints/", `{"VirtualNetwork":"x"}`}, {"POST", "/endpoints/x/attach", ""},
		{"DELETE", "/networks/x", ""}, {"DELETE", "/endpoints/x", ""},
		{"POST", "/networks/", `{"Name":"n"}`},
		{"POST", "/networks/", `{"Name":"n","Subnets":[{"AddressPrefix":"fd00::/64"}]}`}, {"PUT", "/else/", ""},
	} {
		if err := rest(t, s, c[0], c[1], c[2], nil); err == nil {
			t.Errorf("%v succeeded", c)
		}
	}
}
