package winos

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// actionRestart is the only recovery action that we use (SC_ACTION_TYPE):
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-sc_action.
const actionRestart = 1

// recoveryAction is one SC_ACTION. Its delay is in milliseconds, while the reset period is in seconds.
type recoveryAction struct {
	Kind  uint32
	Delay uint32
}

// recovery is the service manager's configuration for a service that ends unexpectedly
// (SERVICE_FAILURE_ACTIONS).
type recovery struct {
	Reset   uint32 // seconds
	Actions []recoveryAction
}

// encodeRecovery converts restart delays to actions, rounded up to milliseconds, and the reset period to
// seconds. Without restarts there is no reset period, because Windows deletes it together with the actions.
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

// decodeRecovery is the inverse of encodeRecovery. It stops at the first action that isn't a restart, because
// later actions never happen.
func decodeRecovery(encoded recovery) (delays []time.Duration, reset time.Duration) {
	for _, action := range encoded.Actions {
		if action.Kind != actionRestart {
			break
		}
		delays = append(delays, time.Duration(action.Delay)*time.Millisecond)
	}
	return delays, time.Duration(encoded.Reset) * time.Second
}

// whole returns d in units, rounded up.
func whole(d, unit time.Duration) (uint32, error) {
	n := d / unit
	if d%unit > 0 {
		n++
	}
	// To Windows, the largest value means "never" (INFINITE).
	if n < 0 || n >= math.MaxUint32 {
		return 0, fmt.Errorf("%v is out of range", d)
	}
	return uint32(n), nil
}

// FailureActions of a service in the registry: a SERVICE_FAILURE_ACTIONS with 32-bit pointers,
// followed by the actions. The pointer to the actions is their offset.
const failureActionsHead = 20

// bytes returns the registry's format.
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

// recoveryOf parses the registry's format. Data that is too short means no recovery.
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
