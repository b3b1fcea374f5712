package blueprint

import (
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// csiProxy renders the service of csi-proxy, which performs the storage operations that CSI drivers in Windows
// containers aren't allowed to perform.
func csiProxy(in Input, bin binaries) (part, error) {
	if off, ok := bin.without(payload.FeatureStorage, contract.PathCSIProxy); ok {
		return off, nil
	}
	file := contract.LogFile(contract.ServiceCSIProxy)
	// csi-proxy doesn't run under kube-log-runner. Because csi-proxy ignores a request to stop, Windows would end
	// kube-log-runner, but not csi-proxy. csi-proxy appends to its own log without a limit, and the daemon truncates
	// this log.
	words := []string{contract.PathCSIProxy, "-log_file=" + file, "-log_file_max_size=0", "-logtostderr=false",
		"-windows-service", "-v=" + verbosity(in.Spec.Logging.Debug)}
	return part{services: []contract.Service{{
		Name: contract.ServiceCSIProxy, Command: command(words...), Priority: 2, Log: in.Logging.log(file, false),
	}}}, nil
}
