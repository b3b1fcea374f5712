package verbs_test

import (
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// By default, VMware Tools ignore interfaces named vEthernet*, and HNS moves the host's address to such an interface.
// So vSphere would no longer see the address.
func TestA43_PreflightTellsThatVMwareToolsWillHideTheHostsAddress(t *testing.T) {
	t.Parallel()
	const dir = `C:\ProgramData\VMware\VMware Tools`
	hidden := []contract.Reason{contract.ReasonAddressHidden}
	for name, c := range map[string]struct {
		missing  bool
		conf     string
		platform contract.Fact
		want     []contract.Reason
	}{
		"no tools":                    {missing: true},
		"no file":                     {want: hidden},
		"a file without settings":     {conf: "[logging]\nlog = true\n", want: hidden},
		"nothing is left out":         {conf: "[guestinfo]\nexclude-nics=\n"},
		"so it is, in Windows' lines": {conf: "[logging]\r\nlog=true\r\n[guestinfo]\r\n exclude-nics = \r\n"},
		"others are left out":         {conf: "[guestinfo]\nexclude-nics=docker*,vEthernet (nat)"},
		"the default is written down": {conf: "[guestinfo]\nexclude-nics=docker*, vEthernet*", want: hidden},
		"a comment":                   {conf: "[guestinfo]\n#exclude-nics=\n", want: hidden},
		"another section":             {conf: "[guestinfo]\n[logging]\nexclude-nics=\n", want: hidden},
		"the last one counts":         {conf: "[guestinfo]\nexclude-nics=\nexclude-nics=vEth*\n", want: hidden},
		"UTF-16, which the tools can't read": {conf: strings.Join(strings.Split("[guestinfo]\nexclude-nics=\n", ""), "\x00"),
			want: hidden},
		"another platform": {platform: contract.FactHostname},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{Hostname: "win-a"})
			files := r.Host().Files
			if !c.missing {
				if err := files.MkdirAll(dir, winos.AccessInherit); err != nil {
					t.Fatal(err)
				}
			}
			if c.conf != "" {
				if err := winos.WriteFile(files, dir+`\tools.conf`, strings.NewReader(c.conf),
					winos.AccessInherit); err != nil {
					t.Fatal(err)
				}
			}
			ask := preflightRequest(r)
			if ask.NodeName = c.platform; c.platform == "" {
				ask.NodeName = contract.FactFullHostname
			}
			found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, ask))
			if len(found.Problems) != len(c.want) || len(c.want) > 0 && found.Problems[0].Reason != c.want[0] {
				t.Errorf("preflight reports %v", found.Problems)
			}
		})
	}
}
