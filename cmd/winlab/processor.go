package main

import "time"

// spentSince returns the processor time of each program since the times in used.
func spentSince(used map[string]time.Duration) (map[string]time.Duration, error) {
	now, err := processorTimes()
	for program := range now {
		now[program] -= used[program]
	}
	return now, err
}
