package cluster

import (
	"strconv"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/lab/port"
)

// nodeMonitorPeriod is the interval between checks of nodes. It is short, so that only the grace period determines
// when an unresponsive node is detected.
const nodeMonitorPeriod = 2 * time.Second

// signingDuration is the flag for the maximum lifetime of certificates.
const signingDuration = "--cluster-signing-duration="

// controllers returns the controllers of lab/controlplane/controllermanager to run. The approving controller and the
// controller that assigns podCIDRs run only with kubeadm. On OpenShift, other components do their work.
func controllers(kubeadm bool) []string {
	all := []string{
		"certificatesigningrequest-signing-controller",
		"certificatesigningrequest-cleaner-controller",
		"clusterrole-aggregation-controller",
		"daemonset-controller", // this and the next four are for tests of drains
		"deployment-controller",
		"replicaset-controller",
		"disruption-controller",
		"endpointslice-controller",
		"pod-garbage-collector-controller",
		"garbage-collector-controller",
		"namespace-controller",
		"node-lifecycle-controller",
		"taint-eviction-controller",
		"root-ca-certificate-publisher-controller",
		"serviceaccount-controller",
		"serviceaccount-token-controller",
		"ttl-controller",
		"validatingadmissionpolicy-status-controller",
	}
	if kubeadm {
		all = append(all, "certificatesigningrequest-approving-controller", "node-ipam-controller")
	}
	return all
}

// controllerManagerComponent runs all controllers with one administrator's identity. A separate account for each
// controller would cost seconds per start without any benefit for testing the operator.
func controllerManagerComponent(o Options, w *workspace, f files, p port.Port) component {
	grace := o.NodeMonitorGrace
	return component{
		name: controllerManagerName,
		path: o.Binaries.ControllerManager,
		dir:  w.dir,
		log:  w.path(controllerManagerName + ".log"),
		args: []string{
			"--kubeconfig=" + f.controllerManagerKubeconfig,
			"--controllers=" + strings.Join(controllers(o.PodNetwork != ""), ","),
			"--bind-address=" + port.Loopback,
			"--secure-port=" + strconv.Itoa(p.Number),
			"--permit-port-sharing=" + strconv.FormatBool(p.Kept),
			"--tls-cert-file=" + f.servingCert,
			"--tls-private-key-file=" + f.servingKey,
			"--cluster-signing-cert-file=" + f.caCert,
			"--cluster-signing-key-file=" + f.caKey,
			signingDuration + o.SigningDuration.String(),
			"--root-ca-file=" + f.caCert,
			"--service-account-private-key-file=" + f.tokenKey,
			"--allocate-node-cidrs=" + strconv.FormatBool(o.PodNetwork != ""),
			"--cluster-cidr=" + o.PodNetwork,
			"--node-monitor-grace-period=" + grace.String(),
			"--node-startup-grace-period=" + grace.String(),
			"--node-monitor-period=" + nodeMonitorPeriod.String(),
			"--kube-api-qps=200",
			"--kube-api-burst=400",
		},
	}
}
