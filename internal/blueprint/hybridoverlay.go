package blueprint

import (
	"math"
	"strconv"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// hybridOverlay renders the service that joins the host to the hybrid overlay network. The HNS network, and the host
// facts that the daemon reads from it, exist only once this service runs.
func hybridOverlay(in Input, bin binaries) (part, error) {
	if off, ok := bin.without(payload.FeaturePodNetwork, contract.PathHybridOverlay); ok {
		return off, nil
	}
	file := contract.LogFile(contract.ServiceHybridOverlay)
	words := []string{
		contract.PathHybridOverlay,
		"--node=" + varNodeName,
		"--bootstrap-kubeconfig=" + contract.PathKubeconfig,
		"--cert-dir=" + contract.DirCNIConfig,
		"--cert-duration=24h",
		"--windows-service",
		"--logfile=" + file,
		"--k8s-apiserver=" + in.Facts.APIServer,
		"--k8s-cacert=" + contract.PathBootstrapCA,
	}
	if in.Facts.VXLANPort != 0 {
		words = append(words, "--hybrid-overlay-vxlan-port="+strconv.Itoa(int(in.Facts.VXLANPort)))
	}
	words = append(words, overlayLog(in.Logging)...)
	if in.Spec.Logging.Debug {
		words = append(words, "--loglevel=5")
	}
	return part{services: []contract.Service{{
		Name: contract.ServiceHybridOverlay, Command: command(words...),
		NodeVariables: []contract.NodeVariable{nodeName()},
		Dependencies:  []string{contract.ServiceKubelet}, Priority: 2, Disruptive: true,
		Log: in.Logging.log(file, true),
	}}}, nil
}

// overlayLog returns the log limits as the program's flags, in megabytes and days. If the number or the age of files is
// 0, the program applies no limit. If the size is 0, the program uses 100 megabytes, so overlayLog passes a very large
// size instead. The program can log only to its own files.
func overlayLog(l Logging) []string {
	const mega, day = 1 << 20, 24 * time.Hour
	size := (l.FileSize.Value() + mega - 1) / mega
	if size == 0 {
		size = math.MaxInt32
	}
	return []string{
		"--logfile-maxsize=" + strconv.FormatInt(size, 10),
		"--logfile-maxbackups=" + strconv.Itoa(l.Files),
		"--logfile-maxage=" + strconv.FormatInt(int64((l.FileAge+day-1)/day), 10),
	}
}
