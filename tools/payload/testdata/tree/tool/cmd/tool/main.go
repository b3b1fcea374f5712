// Command tool represents a third-party program.
package main

import "example.org/tool/version"

func main() { println("tool", version.Version) }
