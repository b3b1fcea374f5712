package contract

import (
	"strconv"
	"strings"
)

// A boot is named boot-<number>-<begun>: by the number that Windows' loader counts up, and by what
// Windows keeps until the next boot only, with which the number is noted: hibernation may count it up
// and is no boot. Either is 0 where there is none, and earlier daemons left
// begun out. A host may say anything else.

// BootName names a boot. begun is written as a hexadecimal number.
func BootName(number uint32, begun uint64) string {
	return "boot-" + strconv.FormatUint(uint64(number), 10) + "-" + strconv.FormatUint(begun, 16)
}

// SameBoot reports whether two names are of one boot: neither part is another one, and one part is
// the same. A part that one of them lacks says nothing. Names of any other form are of one boot only
// when they are equal.
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

// bootParts are 0 where the name lacks them, or is none that BootName gives or gave.
func bootParts(name string) (number, begun uint64) {
	first, second, _ := strings.Cut(strings.TrimPrefix(name, "boot-"), "-")
	number, _ = strconv.ParseUint(first, 10, 32) // what is no number is seen below
	begun, _ = strconv.ParseUint(second, 16, 64)
	if whole := BootName(uint32(number), begun); name != whole && name != strings.TrimSuffix(whole, "-0") {
		return 0, 0
	}
	return number, begun
}
