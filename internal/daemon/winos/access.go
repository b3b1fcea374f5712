package winos

import (
	"slices"
	"strconv"
	"strings"
)

// Security descriptors of files and directories that only Administrators (BA) and SYSTEM (SY) may access: P
// disables inheritance, FA is full access, OICI passes the rights on to new children. The owner is set
// explicitly, because an owner may always change the list, and the default owner is the user who happens to
// be logged in. Syntax:
// https://learn.microsoft.com/en-us/windows/win32/secauthz/security-descriptor-string-format.
const (
	administratorsFile      = "O:BAD:P(A;;FA;;;BA)(A;;FA;;;SY)"
	administratorsDirectory = "O:BAD:P(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)"
	// Pods whose programs aren't administrators write into their volumes with LC and DC. As the owner (CO),
	// they have full access to what they created.
	usersDirectory = administratorsDirectory + "(A;OICI;0x1200a9;;;BU)(A;CI;LCDC;;;BU)(A;OICIIO;GA;;;CO)"
)

// administrators returns the group Administrators and the account SYSTEM, in short form and as SIDs.
func administrators() []string { return []string{"BA", "S-1-5-32-544", "SY", "S-1-5-18"} }

// accessOf parses a security descriptor in text form. It returns AccessAdministrators only if the descriptor
// certainly grants access to trusted accounts only and inherits nothing.
func accessOf(sddl string, trusted []string) Access {
	if !slices.Contains(trusted, section(sddl, "O:")) {
		return AccessInherit
	}
	_, entries, found := strings.Cut(section(sddl, "D:"), "(")
	// NO_ACCESS_CONTROL, a missing list that grants access to every user, also has no entries.
	if !found {
		return AccessInherit
	}
	for entry := range strings.SplitSeq(strings.TrimSuffix(entries, ")"), ")(") {
		// type;flags;rights;object;inherited object;who
		fields := strings.Split(entry, ";")
		if len(fields) < 6 || inherited(fields[1]) {
			return AccessInherit
		}
		switch fields[0] {
		case "D": // denies access, so it grants nothing
		case "A":
			if !slices.Contains(trusted, fields[5]) {
				return AccessInherit
			}
		default:
			return AccessInherit
		}
	}
	return AccessAdministrators
}

// foreign reports whether a security descriptor in text form lets an untrusted account replace a directory or
// its content. The owner, WRITE_DAC and WRITE_OWNER permit a change of the rights. DELETE permits a rename.
// FILE_DELETE_CHILD permits the deletion of other accounts' files in the directory.
func foreign(sddl string, trusted []string) bool {
	if !slices.Contains(trusted, section(sddl, "O:")) {
		return true
	}
	_, entries, found := strings.Cut(section(sddl, "D:"), "(")
	if !found {
		return true // without a list, every user has access
	}
	for entry := range strings.SplitSeq(strings.TrimSuffix(entries, ")"), ")(") {
		fields := strings.Split(entry, ";")
		switch {
		case len(fields) < 6 || fields[0] != "A" && fields[0] != "D":
			return true
		case fields[0] == "D" || slices.Contains(flags(fields[1]), "IO") || slices.Contains(trusted, fields[5]):
		case replaces(fields[2]):
			return true
		}
	}
	return false
}

// replaces reports whether rights, in letters or as a number, include a right to replace a directory or its
// content.
func replaces(rights string) bool {
	const deleteIt, deleteChild, writeDAC, writeOwner, genericAll = 0x10000, 0x40, 0x40000, 0x80000, 0x10000000
	if number, err := strconv.ParseUint(rights, 0, 32); err == nil {
		return number&(deleteIt|deleteChild|writeDAC|writeOwner|genericAll) != 0
	}
	return slices.ContainsFunc(flags(rights), func(right string) bool {
		// DT includes the bit of FILE_DELETE_CHILD.
		return slices.Contains([]string{"FA", "GA", "KA", "SD", "DT", "WD", "WO"}, right)
	})
}

// flags splits a text into items of two letters.
func flags(text string) (all []string) {
	for ; len(text) >= 2; text = text[2:] {
		all = append(all, text[:2])
	}
	return all
}

// section returns one part (O:, G:, D:, S:) of a security descriptor.
func section(sddl, mark string) string {
	depth := 0
	start := -1
	for i := range len(sddl) {
		switch sddl[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth > 0 || i+1 >= len(sddl) || sddl[i+1] != ':' {
			continue
		}
		if start >= 0 {
			return sddl[start:i]
		}
		if sddl[i:i+2] == mark {
			start = i + 2
		}
	}
	if start < 0 {
		return ""
	}
	return sddl[start:]
}

// inherited reports whether the flags of an entry, two letters each, include ID.
func inherited(flags string) bool {
	for ; len(flags) >= 2; flags = flags[2:] {
		if flags[:2] == "ID" {
			return true
		}
	}
	return false
}
