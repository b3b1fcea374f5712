package main

import "runtime/debug"

// heapGrowth is the growth of the heap between two garbage collections, in percent. Go's default is 100, which uses
// more memory and less processor time. The operator mostly waits for hosts and needs little processor time.
const heapGrowth = 30

// boundHeap keeps the heap small, unless GOGC is set.
func boundHeap(environment func(name string) (string, bool)) {
	if valueOr(environment, "GOGC", "") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
