package winos

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/windows"
)

// rebootDelay lets the caller answer over SSH before the machine reboots.
const rebootDelay = 5 * time.Second

// longestReason is the limit of Windows for the text of a shutdown (MAX_REASON_COMMENT_LEN).
const longestReason = 512

// Reboot also succeeds if a shutdown is in progress or scheduled already.
func (system) Reboot(ctx context.Context, why string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := allowShutdown(); err != nil {
		return err
	}
	reason := []rune(why)
	text, err := windows.UTF16PtrFromString(string(reason[:min(len(reason), longestReason/2-1)]))
	if err != nil {
		return fail(err, "asking for a reboot")
	}
	const force, reboot = true, true
	err = windows.InitiateSystemShutdownEx(nil, text, uint32(rebootDelay.Seconds()), force, reboot,
		windows.SHTDN_REASON_MAJOR_OPERATINGSYSTEM|windows.SHTDN_REASON_MINOR_RECONFIG|
			windows.SHTDN_REASON_FLAG_PLANNED)
	if errors.Is(err, windows.ERROR_SHUTDOWN_IN_PROGRESS) || errors.Is(err, windows.ERROR_SHUTDOWN_IS_SCHEDULED) {
		return nil
	}
	return fail(err, "asking for a reboot")
}

// allowShutdown enables the shutdown privilege. Administrators have it, but processes start with it disabled.
// Source: https://learn.microsoft.com/en-us/windows/win32/shutdown/how-to-shut-down-the-system.
func allowShutdown() error {
	var token windows.Token
	err := windows.OpenProcessToken(windows.CurrentProcess(), windows.TOKEN_ADJUST_PRIVILEGES|windows.TOKEN_QUERY,
		&token)
	if err != nil {
		return fail(err, "opening the token of our process")
	}
	defer func() { _ = token.Close() }()
	name, err := windows.UTF16PtrFromString("SeShutdownPrivilege")
	if err != nil {
		return fail(err, "naming the privilege to reboot")
	}
	wanted := windows.Tokenprivileges{PrivilegeCount: 1}
	if err := windows.LookupPrivilegeValue(nil, name, &wanted.Privileges[0].Luid); err != nil {
		return fail(err, "finding the privilege to reboot")
	}
	wanted.Privileges[0].Attributes = windows.SE_PRIVILEGE_ENABLED
	// This succeeds even if the token lacks the privilege. Then Windows denies the shutdown.
	return fail(windows.AdjustTokenPrivileges(token, false, &wanted, 0, nil, nil), "taking the privilege to reboot")
}
