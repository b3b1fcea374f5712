package main

import "time"

// spentSince returns the processor time that each program has used since an earlier call of processorTimes. used is the
// result of that call.
func spentSince(used map[string]time.Duration) (map[string]time.Duration, error) {
	now, err := processorTimes()
	for program := range now {
		now[program] -= used[program]
	}
	return now, err
}
