package main

import "time"

// spentSince is how much processor time each program has had since it had so much.
func spentSince(used map[string]time.Duration) (map[string]time.Duration, error) {
	now, err := processorTimes()
	for program := range now {
		now[program] -= used[program]
	}
	return now, err
}
