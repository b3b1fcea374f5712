package contract

import (
	"strconv"
	"strings"
)

// The name of a boot is boot-<number>-<begun>. number is the counter of Windows' loader. Hibernation may increase the
// counter without a boot, so begun identifies the boot as well: Windows keeps it only until the next boot. Each is 0 if
// it is unknown, and earlier daemons omitted begun. A host may send any other text.

// BootName names a boot. begun is written as a hexadecimal number.
func BootName(number uint32, begun uint64) string {
	return "boot-" + strconv.FormatUint(uint64(number), 10) + "-" + strconv.FormatUint(begun, 16)
}

// SameBoot reports whether two names mean the same boot: neither part differs, and at least one part is equal. If
// one name lacks a part, that part isn't compared. Names in any other form mean the same boot only if they are
// equal.
func SameBoot(stored, now string) bool {
	if stored == now {
		return true
	}
	number, begun := bootParts(stored)
	numberNow, begunNow := bootParts(now)
	same := false
	for _, part := range [][2]uint64{{number, numberNow}, {begun, begunNow}} {
		switch known := part[0] != 0 && part[1] != 0; {
		case known && part[0] != part[1]:
			return false
		case known:
			same = true
		}
	}
	return same
}

// bootParts returns the parts of a boot's name. A part is 0 if the name lacks it, or if BootName never returns such a
// name.
func bootParts(name string) (number, begun uint64) {
	first, second, _ := strings.Cut(strings.TrimPrefix(name, "boot-"), "-")
	number, _ = strconv.ParseUint(first, 10, 32) // the check below detects invalid numbers
	begun, _ = strconv.ParseUint(second, 16, 64)
	if whole := BootName(uint32(number), begun); name != whole && name != strings.TrimSuffix(whole, "-0") {
		return 0, 0
	}
	return number, begun
}
