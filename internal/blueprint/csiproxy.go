package blueprint

import "github.com/windows-nodes/wmco/internal/contract"

// csiProxy does what storage drivers in containers may not do on Windows.
func csiProxy(in Input, bin binaries) (part, error) {
	if off, ok := bin.without(FeatureStorage, contract.PathCSIProxy); ok {
		return off, nil
	}
	return part{services: []contract.Service{{
		Name: contract.ServiceCSIProxy,
		Command: command(contract.PathCSIProxy, "-log_file="+logFile("csi-proxy", "csi-proxy"), "-logtostderr=false", "-windows-service",
			"-v="+verbosity(in.Spec.Logging.Debug)),
		Priority: 2,
	}}}, nil
}
