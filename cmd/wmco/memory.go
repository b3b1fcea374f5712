package main

import "runtime/debug"

// heapGrowth is by how many percent the heap grows between two garbage collections. Go's own 100 trades
// memory for processor time; of that, an operator that mostly waits for hosts has enough.
const heapGrowth = 30

// boundHeap keeps the heap small, unless whoever runs the operator has set GOGC.
func boundHeap(environment func(name string) (string, bool)) {
	if valueOr(environment, "GOGC", "") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
