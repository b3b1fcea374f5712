package cluster

import (
	"strconv"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/lab/port"
)

// nodeMonitorPeriod is how often nodes are looked at: often enough that the grace
// period, and not this, decides when an unresponsive node is noticed.
const nodeMonitorPeriod = 2 * time.Second

// signingDuration is the flag with the longest life of a certificate.
const signingDuration = "--cluster-signing-duration="

// controllers lists what runs, of those that lab/controlplane/controllermanager
// has. The approving controller and the one that gives nodes
// their part of the pods' network are absent unless they are asked for: on OpenShift
// both is others' alone.
func controllers(kubeadm bool) []string {
	all := []string{
		"certificatesigningrequest-signing-controller",
		"certificatesigningrequest-cleaner-controller",
		"clusterrole-aggregation-controller",
		"daemonset-controller", // with the next four: what a drain has to deal with
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

// controllerManagerComponent runs the controllers under one administrator's
// identity: single accounts for each would cost seconds at every start and prove
// nothing about the operator.
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
