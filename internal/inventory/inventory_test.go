package inventory_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

func parse(data map[string]string) ([]inventory.Entry, []inventory.Rejected) {
	return inventory.Parse(&corev1.ConfigMap{Data: data})
}

func TestA10_EntriesAreReadOrRejectedOneByOne(t *testing.T) {
	t.Parallel()
	good := inventory.Entry{Name: "10.0.0.1", Address: "10.0.0.1", User: "Administrator", Port: 22}
	for name, test := range map[string]struct {
		key, value string
		want       inventory.Entry
		reason     contract.Reason
	}{
		"an IPv4 address and a user": {key: "10.0.0.1", value: "username=Administrator",
			want: good},
		"a trailing newline is not part of the user name": {key: "10.0.0.1", value: "username=Administrator\n",
			want: good},
		"windows line ends are not part of the user name": {key: "10.0.0.1", value: "username=Administrator\r\n",
			want: good},
		"a DNS name keeps its spelling, its instance is lower case": {key: "Win-A.Example.com", value: "username=core",
			want: inventory.Entry{Name: "win-a.example.com", Address: "Win-A.Example.com", User: "core", Port: 22}},
		"a domain user": {key: "10.0.0.1", value: `username=CORP\svc-win`,
			want: inventory.Entry{Name: "10.0.0.1", Address: "10.0.0.1", User: `CORP\svc-win`, Port: 22}},
		"a port after a comma and a host key on its own line": {key: "10.0.0.1",
			value: "username=a,port=2222\nhostKey=ssh-ed25519 AAAAC3Nz",
			want: inventory.Entry{Name: "10.0.0.1", Address: "10.0.0.1", User: "a", Port: 2222,
				HostKey: "ssh-ed25519 AAAAC3Nz"}},
		"no equals sign": {key: "10.0.0.1", value: "Administrator",
			reason: contract.ReasonEntryMalformed},
		"an empty value": {key: "10.0.0.1", value: "", reason: contract.ReasonEntryMalformed},
		"an empty user": {key: "10.0.0.1", value: "username=",
			reason: contract.ReasonEntryUserInvalid},
		"a user of spaces": {key: "10.0.0.1", value: "username=   ",
			reason: contract.ReasonEntryUserInvalid},
		"a user with a quote": {key: "10.0.0.1", value: `username=a"b`,
			reason: contract.ReasonEntryUserInvalid},
		"a user that is very long": {key: "10.0.0.1", value: "username=" + strings.Repeat("a", 105),
			reason: contract.ReasonEntryUserInvalid},
		"an unknown setting": {key: "10.0.0.1", value: "username=a,password=b",
			reason: contract.ReasonEntrySettingUnknown},
		"an invalid port": {key: "10.0.0.1", value: "username=a,port=0",
			reason: contract.ReasonEntryPortInvalid},
		"a port that is too high": {key: "10.0.0.1", value: "username=a,port=65536",
			reason: contract.ReasonEntryPortInvalid},
		"an invalid host key": {key: "10.0.0.1", value: "username=a,hostKey=yes",
			reason: contract.ReasonEntryHostKeyInvalid},
		"bytes that are not UTF-8": {key: "10.0.0.1", value: "username=\xff\xfe",
			reason: contract.ReasonEntryNotUTF8},
		"an address with a large number": {key: "300.1.2.3", value: "username=a",
			reason: contract.ReasonEntryMalformed},
		"a name with two hyphens in a row": {key: "fd00--1", value: "username=a",
			want: inventory.Entry{Name: "fd00--1", Address: "fd00--1", User: "a", Port: 22}},
		"the unspecified address":   {key: "0.0.0.0", value: "username=a", reason: contract.ReasonEntryMalformed},
		"a name with an underscore": {key: "win_a", value: "username=a", reason: contract.ReasonEntryMalformed},
		"a name with two dots":      {key: "a..b", value: "username=a", reason: contract.ReasonEntryMalformed},
		"a name that ends in a dot": {key: "a.b.", value: "username=a", reason: contract.ReasonEntryMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entries, rejected := parse(map[string]string{test.key: test.value,
				"10.9.9.9": "username=bystander"})
			bystander := false
			for _, e := range entries {
				bystander = bystander || e.User == "bystander"
			}
			if !bystander {
				t.Error("the other entry was lost")
			}
			if test.reason != "" {
				if len(rejected) != 1 || rejected[0].Problem.Reason != test.reason {
					t.Fatalf("rejected = %v, want reason %s", rejected, test.reason)
				}
				return
			}
			if len(rejected) != 0 {
				t.Fatalf("rejected: %v", rejected[0].Problem)
			}
			for _, e := range entries {
				if e.Address == test.key {
					if diff := cmp.Diff(test.want, e); diff != "" {
						t.Error(diff)
					}
				}
			}
		})
	}
}

func TestA10_OneHostUnderTwoSpellingsIsTakenOnce(t *testing.T) {
	t.Parallel()
	entries, rejected := parse(map[string]string{"win-a": "username=a", "WIN-A": "username=a"})
	if len(entries) != 1 || len(rejected) != 1 || rejected[0].Problem.Reason != contract.ReasonAddressDuplicate {
		t.Fatalf("entries %v, rejected %v", entries, rejected)
	}
	if rejected[0].Name != "" {
		t.Error("the rejected duplicate claims the instance of the accepted entry")
	}
}

// read reads a ConfigMap from testdata.
func read(t *testing.T, file string) *corev1.ConfigMap {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	list := &corev1.ConfigMap{}
	if err == nil {
		err = yaml.UnmarshalStrict(text, list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestA80_AnEntryThatIsNotUTF8IsRejectedByName(t *testing.T) {
	t.Parallel()
	entries, rejected := inventory.Parse(read(t, "entry-utf16.yaml"))
	if len(entries) != 1 || entries[0].Name != "10.1.42.1" {
		t.Errorf("entries %+v", entries)
	}
	if len(rejected) != 1 || rejected[0].Name != "10.1.42.2" ||
		rejected[0].Problem.Reason != contract.ReasonEntryNotUTF8 {
		t.Fatalf("rejected %+v", rejected)
	}
	// Without a byte order mark, UTF-16 looks like UTF-8. PowerShell writes a byte order mark at the start of UTF-8
	// text. This mark is harmless.
	entries, rejected = parse(map[string]string{"a": "u\x00s\x00e\x00r\x00", "b": "\ufeffusername=a"})
	if len(entries) != 1 || len(rejected) != 1 || rejected[0].Problem.Reason != contract.ReasonEntryNotUTF8 {
		t.Errorf("entries %+v, rejected %+v", entries, rejected)
	}
}

func TestA10_EntriesFromTheFieldAreReadOrSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1Zb0n0vWl8s2mXrQ1xJq8uTt1sQXyYk3b9m6sPq7uR"
	entries, rejected := inventory.Parse(read(t, "entries.yaml"))
	var got []string
	for _, e := range entries {
		got = append(got, e.Name+" "+e.User+" "+e.HostKey)
	}
	for _, r := range rejected {
		got = append(got, r.Name+" "+r.Problem.Error())
	}
	want := []string{"10.1.42.3 svc wmco ", "10.1.42.4 Administrator " + key, "10.1.42.5 Administrator " + key,
		"10.1.42.6 Administrator ",
		`10.1.42.7 the value of "10.1.42.7" has the unknown setting user (W111 EntrySettingUnknown)`,
		`10.1.42.8 the username of "10.1.42.8" contains ';', which no Windows user name has (W113 EntryUserInvalid)`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for value, want := range map[string]string{
		"[10.0.0.1]:2222 " + key:                                              key,
		"10.0.0.1,win-a.example.com " + key:                                   key,
		"|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= " + key: key,
		key + " a, comment of CORP\\system":                                   key,
		key + ",port=22":                                                      key,
		"my host " + key:                                                      key,
		"ssh-ed25519":                                                         "",
		"ssh-ed25519 BBBB":                                                    "",
	} {
		entries, rejected = parse(map[string]string{"a": "username=a\nhostKey=" + value})
		if len(entries) == 1 && entries[0].HostKey != want || len(entries) == 0 && want != "" {
			t.Errorf("%s: entries %+v, rejected %+v", value, entries, rejected)
		}
	}
}

func TestA10_FiveThousandEntries(t *testing.T) {
	t.Parallel()
	data := map[string]string{}
	for i := range 5000 {
		data[fmt.Sprintf("10.%d.%d.%d", i/65536, i/256%256, i%256)] = "username=Administrator"
	}
	data["bad"] = "no"
	entries, rejected := parse(data)
	if len(entries) != 5000 || len(rejected) != 1 {
		t.Fatalf("%d entries, %d rejected", len(entries), len(rejected))
	}
}

func TestA35_ValuesAreNotRepeatedInProblems(t *testing.T) {
	t.Parallel()
	_, rejected := parse(map[string]string{"a": "hunter2", "b": "username=a,password=hunter2",
		"c": `username=hunter2"`})
	for _, r := range rejected {
		if strings.Contains(r.Problem.Error(), "hunter2") {
			t.Errorf("the problem of %q repeats the value: %v", r.Key, r.Problem)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("10.0.0.1", "username=Administrator,port=22\nhostKey=ssh-ed25519 AAAA")
	f.Fuzz(func(t *testing.T, key, value string) {
		entries, rejected := parse(map[string]string{key: value})
		if len(entries)+len(rejected) != 1 {
			t.Fatal("an entry is missing or duplicated")
		}
		if len(entries) == 1 && (entries[0].User == "" || entries[0].Name == "" || entries[0].Port == 0) {
			t.Fatalf("the entry is incomplete: %+v", entries[0])
		}
	})
}
