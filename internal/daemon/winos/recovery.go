package winos

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// actionRestart is the kind of recovery action that is ours (SC_ACTION_TYPE):
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-sc_action.
const actionRestart = 1

// recoveryAction is one SC_ACTION. Its delay is in milliseconds, while the reset period beside it
// is in seconds.
type recoveryAction struct {
	Kind  uint32
	Delay uint32
}

// recovery is what the service manager keeps about a service that ends unexpectedly
// (SERVICE_FAILURE_ACTIONS).
type recovery struct {
	Reset   uint32 // seconds
	Actions []recoveryAction
}

// encodeRecovery turns delays before restarts into actions. A part of a millisecond or of a second
// counts as a whole one. Without restarts there is no reset period: Windows deletes it together
// with the actions.
func encodeRecovery(delays []time.Duration, reset time.Duration) (recovery, error) {
	seconds, err := whole(reset, time.Second)
	if err != nil {
		return recovery{}, fmt.Errorf("reset period: %w", err)
	}
	encoded := recovery{Reset: seconds}
	for i, delay := range delays {
		ms, err := whole(delay, time.Millisecond)
		if err != nil {
			return recovery{}, fmt.Errorf("delay %d: %w", i+1, err)
		}
		encoded.Actions = append(encoded.Actions, recoveryAction{Kind: actionRestart, Delay: ms})
	}
	if len(encoded.Actions) == 0 {
		return recovery{}, nil
	}
	return encoded, nil
}

// decodeRecovery is the other way round. The list ends at the first action that is not a restart:
// what comes after it never happens.
func decodeRecovery(encoded recovery) (delays []time.Duration, reset time.Duration) {
	for _, action := range encoded.Actions {
		if action.Kind != actionRestart {
			break
		}
		delays = append(delays, time.Duration(action.Delay)*time.Millisecond)
	}
	return delays, time.Duration(encoded.Reset) * time.Second
}

// whole counts units in d, rounded up.
func whole(d, unit time.Duration) (uint32, error) {
	n := d / unit
	if d%unit > 0 {
		n++
	}
	// The largest value means "never" (INFINITE) to Windows.
	if n < 0 || n >= math.MaxUint32 {
		return 0, fmt.Errorf("%v is out of range", d)
	}
	return uint32(n), nil
}

// The registry value FailureActions of a service: a SERVICE_FAILURE_ACTIONS with 32-bit pointers,
// that of the actions being their offset, and the actions behind it.
const failureActionsHead = 20

// bytes is the registry's form.
func (r recovery) bytes() []byte {
	raw := binary.LittleEndian.AppendUint32(nil, r.Reset)
	raw = append(raw, make([]byte, 8)...) // no message before a reboot, no command
	raw = binary.LittleEndian.AppendUint32(raw, uint32(len(r.Actions)))
	raw = binary.LittleEndian.AppendUint32(raw, failureActionsHead)
	for _, action := range r.Actions {
		raw = binary.LittleEndian.AppendUint32(raw, action.Kind)
		raw = binary.LittleEndian.AppendUint32(raw, action.Delay)
	}
	return raw
}

// recoveryOf reads the registry's form; what is too short for it is no recovery.
func recoveryOf(raw []byte) recovery {
	if len(raw) < failureActionsHead {
		return recovery{}
	}
	found := recovery{Reset: binary.LittleEndian.Uint32(raw)}
	count := binary.LittleEndian.Uint32(raw[12:])
	for actions := raw[failureActionsHead:]; count > 0 && len(actions) >= 8; count, actions = count-1, actions[8:] {
		found.Actions = append(found.Actions, recoveryAction{
			Kind: binary.LittleEndian.Uint32(actions), Delay: binary.LittleEndian.Uint32(actions[4:]),
		})
	}
	return found
}
