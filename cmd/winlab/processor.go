package main

import "time"

// spentSince returns each program's processor time since the call of processorTimes that returned used.
func spentSince(used map[string]time.Duration) (map[string]time.Duration, error) {
	now, err := processorTimes()
	for program := range now {
		now[program] -= used[program]
	}
	return now, err
}
