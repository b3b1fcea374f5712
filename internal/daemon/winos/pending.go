package winos

import "strings"

// replacedAtBoot returns the targets in the registry value PendingFileRenameOperations. The list has pairs of source
// and target in the kernel's form (\??\C:\dir\file). If a target is empty, the source is deleted. A leading exclamation
// mark means that the target may already exist. Source:
// https://learn.microsoft.com/en-us/windows/win32/api/winbase/nf-winbase-movefileexw (MOVEFILE_DELAY_UNTIL_REBOOT).
func replacedAtBoot(list []string) (targets []string) {
	for i := 1; i < len(list); i += 2 {
		target := strings.TrimPrefix(strings.TrimPrefix(list[i], "!"), `\??\`)
		if target != "" {
			targets = append(targets, target)
		}
	}
	return targets
}
