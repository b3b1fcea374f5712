// Command crashing is a daemon that prints its version and can do nothing else: as a service it counts its start, and
// ends.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] != "version" {
		serve()
		os.Exit(1)
	}
	fmt.Println("0.1.0-crashing")
}
