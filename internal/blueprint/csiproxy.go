package blueprint

import "github.com/windows-nodes/wmco/internal/contract"

// csiProxy does what storage drivers in containers may not do on Windows.
func csiProxy(in Input, bin binaries) (part, error) {
	if off, ok := bin.without(FeatureStorage, contract.PathCSIProxy); ok {
		return off, nil
	}
	file := logFile("csi-proxy", "csi-proxy")
	words := append(in.Logging.logged(file), contract.PathCSIProxy, "-logtostderr=true", "-windows-service",
		"-v="+verbosity(in.Spec.Logging.Debug))
	return part{services: []contract.Service{{
		Name: contract.ServiceCSIProxy, Command: command(words...), Priority: 2, Log: in.Logging.log(file, true),
	}}}, nil
}
