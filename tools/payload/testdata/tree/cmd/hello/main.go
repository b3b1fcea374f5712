// Command hello represents the daemon.
package main

var version = "not stamped"

func main() { println("hello", version) }
