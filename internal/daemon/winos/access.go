package winos

import (
	"slices"
	"strconv"
	"strings"
)

// Security descriptors of files and directories that only Administrators (BA) and SYSTEM (SY) may access. P disables
// inheritance, FA is full access, and OICI makes new children inherit the rights. The owner is set explicitly for two
// reasons: an owner may always change the access list, and the default owner is the user who happens to be logged in.
// Syntax: https://learn.microsoft.com/en-us/windows/win32/secauthz/security-descriptor-string-format.
const (
	administratorsFile      = "O:BAD:P(A;;FA;;;BA)(A;;FA;;;SY)"
	administratorsDirectory = "O:BAD:P(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)"
	// LC and DC let a pod's programs write to volumes even if the programs don't run as administrators. As the owner
	// (CO), a program has full access to the files that it created.
	usersDirectory = administratorsDirectory + "(A;OICI;0x1200a9;;;BU)(A;CI;LCDC;;;BU)(A;OICIIO;GA;;;CO)"
)

// isTrusted reports whether an account is Administrators or SYSTEM. The account is in short form (BA) or a SID.
func isTrusted(account string) bool {
	return slices.Contains([]string{"BA", "S-1-5-32-544", "SY", "S-1-5-18"}, account)
}

// entriesOf parses the access list of a security descriptor in text form. The fields of an entry are: type, flags,
// rights, object, inherited object, account. `ok` is false in three cases: the owner isn't trusted; there is no list
// (NO_ACCESS_CONTROL), so every user has access; or an entry neither allows (A) nor denies (D) access.
func entriesOf(sddl string) (entries [][]string, ok bool) {
	_, list, found := strings.Cut(section(sddl, "D:"), "(")
	if !found || !isTrusted(section(sddl, "O:")) {
		return nil, false
	}
	for entry := range strings.SplitSeq(strings.TrimSuffix(list, ")"), ")(") {
		fields := strings.Split(entry, ";")
		if len(fields) < 6 || fields[0] != "A" && fields[0] != "D" {
			return nil, false
		}
		entries = append(entries, fields)
	}
	return entries, true
}

// accessOf returns the access that a security descriptor in text form grants. It returns AccessAdministrators only if
// it is certain that only trusted accounts have access and that no entry is inherited.
func accessOf(sddl string) Access {
	entries, ok := entriesOf(sddl)
	if !ok || slices.ContainsFunc(entries, func(entry []string) bool {
		return slices.Contains(flags(entry[1]), "ID") || entry[0] == "A" && !isTrusted(entry[5])
	}) {
		return AccessInherit
	}
	return AccessAdministrators
}

// `foreign` returns true if a security descriptor in text form lets an untrusted account replace a directory or its
// content. The owner can change the rights, and so can accounts with WRITE_DAC or WRITE_OWNER. DELETE permits a rename.
// FILE_DELETE_CHILD permits the deletion of other accounts' files in the directory.
func foreign(sddl string) bool {
	entries, ok := entriesOf(sddl)
	return !ok || slices.ContainsFunc(entries, func(entry []string) bool {
		return entry[0] == "A" && !slices.Contains(flags(entry[1]), "IO") && !isTrusted(entry[5]) && replaces(entry[2])
	})
}

// `replaces` returns true if rights (letters or a number) permit an account to replace a directory or its content.
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

func flags(text string) (all []string) {
	for ; len(text) >= 2; text = text[2:] {
		all = append(all, text[:2])
	}
	return all
}

// section returns the part of a security descriptor that follows `mark` (O:, G:, D: or S:), or an empty string.
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
