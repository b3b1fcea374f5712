package winos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
)

// rebootDelay is the time until Windows reboots, so that the caller can send its answer over SSH before the reboot.
const rebootDelay = 5 * time.Second

// longestReason is Windows' limit for the text of a shutdown (MAX_REASON_COMMENT_LEN).
const longestReason = 512

// Reboot implements System. If a shutdown is already in progress or scheduled, it returns no error.
func (system) Reboot(ctx context.Context, why string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// Administrators have this privilege, but processes start with it disabled. Source:
	// https://learn.microsoft.com/en-us/windows/win32/shutdown/how-to-shut-down-the-system.
	if err := winio.EnableProcessPrivileges([]string{"SeShutdownPrivilege"}); err != nil {
		return fmt.Errorf("taking the privilege to reboot: %w: %w", ErrDenied, err)
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
