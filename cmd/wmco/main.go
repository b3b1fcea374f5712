// Command wmco is the Windows Machine Config Operator. It turns hosts with Windows Server into nodes of the cluster
// that it runs in.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // for the time zones of maintenance windows: the image has no files with time zones

	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "windows-machine-config-operator:", err)
		os.Exit(1)
	}
}
