// Command testservice is a real Windows service that does what its command line orders, and nothing else: the suite starts, stops, crashes
// and replaces it.
package main
