package winos

import "strings"

// replacedAtBoot reads PendingFileRenameOperations: pairs of what is moved and where to, in the
// form of the kernel (\??\C:\dir\file). An empty target means a deletion; an exclamation mark
// before it, that it may exist. It gives the targets. Source:
// https://learn.microsoft.com/en-us/windows/win32/api/winbase/nf-winbase-movefileexw
// (MOVEFILE_DELAY_UNTIL_REBOOT).
func replacedAtBoot(list []string) (targets []string) {
	for i := 1; i < len(list); i += 2 {
		target := strings.TrimPrefix(strings.TrimPrefix(list[i], "!"), `\??\`)
		if target != "" {
			targets = append(targets, target)
		}
	}
	return targets
}
