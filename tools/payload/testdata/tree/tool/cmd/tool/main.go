// Command tool stands for a foreign program.
package main

import "example.org/tool/version"

func main() { println("tool", version.Version) }
