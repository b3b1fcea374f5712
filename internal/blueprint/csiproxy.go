package blueprint

import (
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// csiProxy does what storage drivers in containers may not do on Windows.
func csiProxy(in Input, bin binaries) (part, error) {
	if off, ok := bin.without(payload.FeatureStorage, contract.PathCSIProxy); ok {
		return off, nil
	}
	file := contract.LogFile(contract.ServiceCSIProxy)
	// Not in kube-log-runner: csi-proxy does not end when it is stopped, and Windows would end the
	// wrapper alone. It appends to its log, and has no limit for it: the daemon cuts it.
	words := []string{contract.PathCSIProxy, "-log_file=" + file, "-log_file_max_size=0", "-logtostderr=false",
		"-windows-service", "-v=" + verbosity(in.Spec.Logging.Debug)}
	return part{services: []contract.Service{{
		Name: contract.ServiceCSIProxy, Command: command(words...), Priority: 2, Log: in.Logging.log(file, false),
	}}}, nil
}
