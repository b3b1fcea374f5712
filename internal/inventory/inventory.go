// Package inventory converts entries of the ConfigMap windows-instances, and Machines of any API, to instances.
//
// The controllers for both sources use it. It has no side effects: no client, no name resolution, no clock.
package inventory

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Entry is a host that a user listed, or the host of a Machine.
type Entry struct {
	// Name is the name of the WindowsInstance: the address in lower case, or the Machine's name.
	Name    string
	Address string
	User    string
	// Port is the SSH port. HostKey is the expected host key ("<type> <base64>"), or empty.
	Port    int32
	HostKey string
	// Machine contains the data that only Machines have. It is nil for a host that a user listed.
	Machine *MachineEntry
}

// Rejected is an invalid entry.
type Rejected struct {
	// Key is the key in the ConfigMap, as the user wrote it. Name is the name of the instance that belongs to the key,
	// or empty if no instance can have this name. This instance is not removed, because a typing error does not mean
	// that the user wants to remove the node.
	Key, Name string
	Problem   *contract.Problem
}

const (
	settingUser    = "username"
	settingPort    = "port"
	settingHostKey = "hostKey"

	maxAddress = 253
	maxUser    = 104 // DOMAIN\user has at most 15 + 1 + 20 characters, UPNs may have more, and Windows allows 256
	maxHostKey = 8192
)

var (
	label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	// hostKey matches a key in a line of known_hosts, of ssh-keyscan, or of a .pub file. The line may contain a host
	// before the key and a comment after it. A key begins with a length, so its base64 begins with AAAA.
	hostKey    = regexp.MustCompile(`(?:^|\s)([a-z0-9@.-]+)\s+(AAAA[A-Za-z0-9+/]+=*)(?:\s|$)`)
	allNumeric = regexp.MustCompile(`^[0-9.]+$`)
	// comma matches a comma that separates settings. A setting must follow the comma, because hosts before a key and
	// comments after a key may contain commas as well.
	comma = regexp.MustCompile(`,[,\s]*([A-Za-z]+\s*=|$)`)
	// misspelled matches unknown setting names that a message may contain. Other names may be part of a password.
	misspelled = regexp.MustCompile(`(?i)^(user|user[ _-]?name|name|login|password|(ssh)?[ _-]?port|(host)?[ _-]?key)$`)
)

// Parse parses the ConfigMap windows-instances. A key is an address. A value is "username=<name>", optionally followed
// by more settings on separate lines or after commas (port=2222, hostKey=ssh-ed25519 AAAA…). White space around
// settings is ignored. Invalid entries are rejected with a reason, and don't affect others. Results are sorted by key.
func Parse(list *corev1.ConfigMap) (entries []Entry, rejected []Rejected) {
	values := Values(list)
	owners := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		entry, problem := parse(key, values[key])
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

// Values returns all entries of the ConfigMap windows-instances, by key. It includes entries in binaryData, where
// kubectl stores files that are not UTF-8.
func Values(list *corev1.ConfigMap) map[string]string {
	values := map[string]string{}
	for key, value := range list.BinaryData {
		values[key] = string(value)
	}
	maps.Copy(values, list.Data)
	return values
}

func parse(key, value string) (Entry, *contract.Problem) {
	entry := Entry{Address: key, Port: contract.SSHPort}
	if !validAddress(key) {
		return entry, contract.NewProblem(contract.ReasonEntryMalformed,
			"key %q is neither an IPv4 address nor a DNS name", key)
	}
	entry.Name = strings.ToLower(key)
	if !utf8.ValidString(value) || strings.Contains(value, "\x00") {
		return entry, contract.NewProblem(contract.ReasonEntryNotUTF8, "the value of %q is not UTF-8", key)
	}
	value = strings.TrimPrefix(value, "\ufeff") // Windows PowerShell writes this byte order mark
	for setting := range strings.SplitSeq(comma.ReplaceAllString(value, "\n$1"), "\n") {
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

// set parses one setting of the form name=value. Problems never contain the value, because it may be a password.
func (e *Entry) set(key, setting string) *contract.Problem {
	name, value, found := strings.Cut(setting, "=")
	if !found {
		return contract.NewProblem(contract.ReasonEntryMalformed, "the value of %q has a part without '='", key)
	}
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	switch name {
	case settingUser:
		if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
			value = strings.TrimSpace(value[1 : len(value)-1])
		}
		if why := invalidUser(value); why != "" {
			return contract.NewProblem(contract.ReasonEntryUserInvalid, "the %s of %q %s", name, key, why)
		}
		e.User = value
	case settingPort:
		port, err := strconv.ParseUint(value, 10, 16)
		if err != nil || port == 0 {
			return contract.NewProblem(contract.ReasonEntryPortInvalid, "the %s of %q is not a number from 1 to 65535",
				name, key)
		}
		e.Port = int32(port)
	case settingHostKey:
		match := hostKey.FindStringSubmatch(value)
		if match == nil || len(value) > maxHostKey {
			return contract.NewProblem(contract.ReasonEntryHostKeyInvalid,
				"the %s of %q has no <type> <base64>", name, key)
		}
		e.HostKey = match[1] + " " + match[2]
	default:
		if !misspelled.MatchString(name) {
			return contract.NewProblem(contract.ReasonEntrySettingUnknown, "the value of %q has an unknown setting",
				key)
		}
		return contract.NewProblem(contract.ReasonEntrySettingUnknown, "the value of %q has the unknown setting %s",
			key,
			name)
	}
	return nil
}

// invalidUser returns why a text can't be a Windows user name, or "". Windows forbids some characters in user names. A
// backslash or @ is allowed, because it separates the domain.
func invalidUser(user string) string {
	switch i := strings.IndexAny(user, `"/[]:;|=,+*?<>`); {
	case strings.TrimSpace(user) == "":
		return "is empty"
	case len(user) > maxUser:
		return fmt.Sprintf("is longer than %d characters", maxUser)
	case i >= 0:
		return fmt.Sprintf("contains '%c', which no Windows user name has", user[i])
	case strings.ContainsFunc(user, unicode.IsControl):
		return "contains a control character"
	}
	return ""
}

// validAddress reports whether an address is an IPv4 address or a DNS name. For example, 300.1.2.3 is neither of them,
// but resolvers would treat it as a name.
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
