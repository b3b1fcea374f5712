package winos

import (
	"slices"
	"strconv"
	"strings"
)

// Security descriptors of files and directories that only Administrators (BA) and SYSTEM (SY) may
// touch: P switches inheritance off, FA is full access, OICI lets what is made in a directory have
// the same. The owner is named because an owner may always change the list, and a file would
// otherwise belong to the user who happened to be logged in. Syntax:
// https://learn.microsoft.com/en-us/windows/win32/secauthz/security-descriptor-string-format.
const (
	administratorsFile      = "O:BAD:P(A;;FA;;;BA)(A;;FA;;;SY)"
	administratorsDirectory = "O:BAD:P(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)"
	// Pods whose programs are no administrators write into their volumes with LC and DC, and have full access to
	// what they made as its owner, CO.
	usersDirectory = administratorsDirectory + "(A;OICI;0x1200a9;;;BU)(A;CI;LCDC;;;BU)(A;OICIIO;GA;;;CO)"
)

// administrators are the group Administrators and the account SYSTEM, in short form and as
// identifiers.
func administrators() []string { return []string{"BA", "S-1-5-32-544", "SY", "S-1-5-18"} }

// accessOf reads a security descriptor in text form. It answers AccessAdministrators only for one
// that surely lets nobody in but those who are trusted, and that has nothing from the directory
// above.
func accessOf(sddl string, trusted []string) Access {
	if !slices.Contains(trusted, section(sddl, "O:")) {
		return AccessInherit
	}
	_, entries, found := strings.Cut(section(sddl, "D:"), "(")
	// NO_ACCESS_CONTROL, a list that is absent and lets everybody in, has no entries either.
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
		case "D": // denies; it lets nobody in
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

// foreign says whether a security descriptor in text form lets somebody who is not trusted replace a
// directory or what lies in it: the owner may change its rights, and so may who has WRITE_DAC or
// WRITE_OWNER; who has DELETE may rename it, and who has FILE_DELETE_CHILD what others made in it.
func foreign(sddl string, trusted []string) bool {
	if !slices.Contains(trusted, section(sddl, "O:")) {
		return true
	}
	_, entries, found := strings.Cut(section(sddl, "D:"), "(")
	if !found {
		return true // no list lets everybody in
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

// replaces says whether rights, in letters or as a number, have one that lets replace a directory or
// what lies in it.
func replaces(rights string) bool {
	const deleteIt, deleteChild, writeDAC, writeOwner, genericAll = 0x10000, 0x40, 0x40000, 0x80000, 0x10000000
	if number, err := strconv.ParseUint(rights, 0, 32); err == nil {
		return number&(deleteIt|deleteChild|writeDAC|writeOwner|genericAll) != 0
	}
	return slices.ContainsFunc(flags(rights), func(right string) bool {
		// DT has the bit of FILE_DELETE_CHILD.
		return slices.Contains([]string{"FA", "GA", "KA", "SD", "DT", "WD", "WO"}, right)
	})
}

// flags splits a text of two letters each.
func flags(text string) (all []string) {
	for ; len(text) >= 2; text = text[2:] {
		all = append(all, text[:2])
	}
	return all
}

// section cuts one part (O:, G:, D:, S:) out of a security descriptor.
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

// inherited finds the flag ID among the flags of an entry, which are two letters each.
func inherited(flags string) bool {
	for ; len(flags) >= 2; flags = flags[2:] {
		if flags[:2] == "ID" {
			return true
		}
	}
	return false
}
