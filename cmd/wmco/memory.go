package main

import "runtime/debug"

// heapGrowth is the value of GOGC: how much the heap may grow between two garbage collections, in percent. Go's default
// is 100, which needs more memory and less processor time. The operator mostly waits for hosts, so it needs little
// processor time.
const heapGrowth = 30

// boundHeap keeps the heap small by setting heapGrowth. If the environment variable GOGC is set, boundHeap changes
// nothing.
func boundHeap(environment func(name string) (string, bool)) {
	if valueOr(environment, "GOGC", "") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
