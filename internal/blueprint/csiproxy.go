package blueprint

import (
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// csiProxy renders csi-proxy, which performs the storage operations that containers of CSI drivers may not perform.
func csiProxy(in Input, bin binaries) (part, error) {
	if off, ok := bin.without(payload.FeatureStorage, contract.PathCSIProxy); ok {
		return off, nil
	}
	file := contract.LogFile(contract.ServiceCSIProxy)
	// csi-proxy ignores a request to stop, so it doesn't run under kube-log-runner: Windows would end only the wrapper.
	// csi-proxy appends to its log without a limit, and the daemon truncates the log.
	words := []string{contract.PathCSIProxy, "-log_file=" + file, "-log_file_max_size=0", "-logtostderr=false",
		"-windows-service", "-v=" + verbosity(in.Spec.Logging.Debug)}
	return part{services: []contract.Service{{
		Name: contract.ServiceCSIProxy, Command: command(words...), Priority: 2, Log: in.Logging.log(file, false),
	}}}, nil
}
