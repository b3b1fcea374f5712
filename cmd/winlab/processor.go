package main

import "time"

// spentSince subtracts earlier processor times (used) from each program's processor time now.
func spentSince(used map[string]time.Duration) (map[string]time.Duration, error) {
	now, err := processorTimes()
	for program := range now {
		now[program] -= used[program]
	}
	return now, err
}
