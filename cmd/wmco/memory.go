package main

import "runtime/debug"

// heapGrowth is the value of GOGC: the growth of the heap between two garbage collections, in percent. Go's default,
// 100, needs more memory and less processor time. The operator mostly waits for hosts and needs little processor time.
const heapGrowth = 30

// boundHeap sets heapGrowth, unless the environment variable GOGC is set.
func boundHeap(environment func(name string) (string, bool)) {
	if valueOr(environment, "GOGC", "") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
