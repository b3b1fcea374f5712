// Package inventory answers WHO should be a node: it turns the entries of the windows-instances
// ConfigMap, and Machines of whatever API, into instances.
//
// The source controllers use it. It is pure: no client, no name resolution, no clock.
package inventory

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Entry is one host that the user listed, or that a Machine stands for.
type Entry struct {
	// Name is the WindowsInstance's name: the address in lower case, or the Machine's name.
	Name    string
	Address string
	User    string
	// Port is the SSH port, and HostKey the host key to expect ("<type> <base64>") or empty.
	Port    int32
	HostKey string
	// Machine is what only Machines tell; nil for an entry of the list.
	Machine *MachineEntry
}

// Rejected is an entry that is not understood.
type Rejected struct {
	// Key as the user wrote it. Name is the instance that the key would have; it stays as it is,
	// because a typing error is no order to remove a node. It is empty when the key can't name an
	// instance.
	Key, Name string
	Problem   *contract.Problem
}

// Settings of an entry's value.
const (
	settingUser    = "username"
	settingPort    = "port"
	settingHostKey = "hostKey"

	maxAddress = 253
	maxUser    = 104 // UNLEN of lmcons.h is 256; sAMAccountName and NetBIOS domain make 20 + 15 + 1; UPNs may be longer
	maxHostKey = 8192
)

var (
	label      = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	hostKey    = regexp.MustCompile(`^[a-z0-9@.-]+ [A-Za-z0-9+/]+=*$`)
	allNumeric = regexp.MustCompile(`^[0-9.]+$`)
)

// Parse reads the data of the windows-instances ConfigMap: address → "username=<name>", optionally
// followed by further settings on lines of their own or after commas (port=2222,
// hostKey=ssh-ed25519 AAAA…). White space around settings is ignored. A bad entry is rejected with
// its reason and does not touch the others. Both results are in the order of their keys.
func Parse(data map[string]string) (entries []Entry, rejected []Rejected) {
	keys := make([]string, 0, len(data))
	for key := range data {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	owners := map[string]string{}
	for _, key := range keys {
		entry, problem := parse(key, data[key])
		if problem == nil && owners[entry.Name] != "" {
			problem = contract.NewProblem(contract.ReasonAddressDuplicate, "entry %q is the same host as entry %q", key,
				owners[entry.Name])
			entry.Name = ""
		}
		if problem != nil {
			rejected = append(rejected, Rejected{Key: key, Name: entry.Name, Problem: problem})
			continue
		}
		owners[entry.Name] = key
		entries = append(entries, entry)
	}
	return entries, rejected
}

func parse(key, value string) (Entry, *contract.Problem) {
	entry := Entry{Address: key, Port: contract.SSHPort}
	if !validAddress(key) {
		return entry, contract.NewProblem(contract.ReasonEntryMalformed,
			"key %q is neither an IPv4 address nor a DNS name", key)
	}
	entry.Name = strings.ToLower(key)
	if !utf8.ValidString(value) {
		return entry, contract.NewProblem(contract.ReasonEntryMalformed, "the value of %q is not UTF-8", key)
	}
	for setting := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == '\n' || r == ',' }) {
		setting = strings.TrimSpace(setting)
		if setting == "" {
			continue
		}
		if problem := entry.set(key, setting); problem != nil {
			return entry, problem
		}
	}
	if entry.User == "" {
		return entry, contract.NewProblem(contract.ReasonEntryMalformed, "the value of %q has no username=<name>", key)
	}
	return entry, nil
}

// set reads one name=value. The value is not repeated in problems: a password may have been pasted
// there.
func (e *Entry) set(key, setting string) *contract.Problem {
	name, value, found := strings.Cut(setting, "=")
	if !found {
		return contract.NewProblem(contract.ReasonEntryMalformed, "the value of %q has a part without '='", key)
	}
	value = strings.TrimSpace(value)
	switch strings.TrimSpace(name) {
	case settingUser:
		if !validUser(value) {
			return contract.NewProblem(contract.ReasonEntryMalformed,
				"the user name of %q is empty or not a Windows user name", key)
		}
		e.User = value
	case settingPort:
		port, err := strconv.ParseUint(value, 10, 16)
		if err != nil || port == 0 {
			return contract.NewProblem(contract.ReasonEntryMalformed, "the port of %q is not a number from 1 to 65535",
				key)
		}
		e.Port = int32(port)
	case settingHostKey:
		if len(value) > maxHostKey || !hostKey.MatchString(value) {
			return contract.NewProblem(contract.ReasonEntryMalformed,
				"the host key of %q is not of the form <type> <base64>", key)
		}
		e.HostKey = value
	default:
		return contract.NewProblem(contract.ReasonEntryMalformed,
			"the value of %q has a setting that is not username, port or hostKey", key)
	}
	return nil
}

// validUser follows the list of characters that a Windows user name may not have; a backslash or @
// separates the domain.
// https://learn.microsoft.com/windows/win32/api/lmaccess/ns-lmaccess-user_info_1
func validUser(user string) bool {
	if user == "" || len(user) > maxUser || strings.ContainsAny(user, `"/[]:;|=,+*?<>`) {
		return false
	}
	return !strings.ContainsFunc(user, func(r rune) bool { return r < ' ' || r == 0x7f || r == ' ' })
}

// validAddress says whether an address is an IPv4 address or a DNS name. 300.1.2.3 is neither:
// resolvers would look it up as a name.
func validAddress(address string) bool {
	if len(address) > maxAddress {
		return false
	}
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Is4() && !ip.IsUnspecified() && !ip.IsMulticast()
	}
	if allNumeric.MatchString(address) {
		return false
	}
	for part := range strings.SplitSeq(strings.ToLower(address), ".") {
		if !label.MatchString(part) {
			return false
		}
	}
	return true
}
