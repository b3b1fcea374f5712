// Command crashing is a daemon that can only print its version. As a service, it counts its starts and exits.
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
