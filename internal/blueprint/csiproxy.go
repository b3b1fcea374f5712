package blueprint

import (
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// csiProxy performs the storage operations that CSI drivers in Windows containers aren't allowed to perform.
func csiProxy(in Input, bin binaries) (part, error) {
	if off, ok := bin.without(payload.FeatureStorage, contract.PathCSIProxy); ok {
		return off, nil
	}
	file := contract.LogFile(contract.ServiceCSIProxy)
	// csi-proxy doesn't run under kube-log-runner, because csi-proxy ignores a stop request: Windows would only end
	// the wrapper. It appends to its log without a limit. The daemon truncates the log.
	words := []string{contract.PathCSIProxy, "-log_file=" + file, "-log_file_max_size=0", "-logtostderr=false",
		"-windows-service", "-v=" + verbosity(in.Spec.Logging.Debug)}
	return part{services: []contract.Service{{
		Name: contract.ServiceCSIProxy, Command: command(words...), Priority: 2, Log: in.Logging.log(file, false),
	}}}, nil
}
