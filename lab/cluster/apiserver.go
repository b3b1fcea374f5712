package cluster

import (
	"strconv"

	"github.com/windows-nodes/wmco/lab/port"
)

// With auditPolicy, the API server logs each request when it answers the request. Exception: it logs a watch twice,
// when the watch begins and when it ends.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// apiServerComponent is an API server that authenticates and authorizes like OpenShift's. Aggregation is disabled
// because this project has no aggregated API. The API server doesn't reconcile its own endpoints, because no pod
// calls it.
func apiServerComponent(binaries Binaries, w *workspace, f files, p port.Port) component {
	etcd, _ := etcdURLs()
	c := component{
		name: apiServerName,
		path: binaries.APIServer,
		dir:  w.path("etcd"), // the etcd URL is relative
		log:  w.path(apiServerName + ".log"),
		args: []string{
			"--etcd-servers=" + etcd,
			"--bind-address=" + port.Loopback,
			"--advertise-address=" + port.Loopback,
			"--secure-port=" + strconv.Itoa(p.Number),
			"--permit-port-sharing=" + strconv.FormatBool(p.Kept),
			"--cert-dir=" + w.dir,
			"--tls-cert-file=" + f.servingCert,
			"--tls-private-key-file=" + f.servingKey,
			"--client-ca-file=" + f.caCert,
			"--kubelet-certificate-authority=" + f.caCert,
			"--kubelet-client-certificate=" + f.kubeletClientCert,
			"--kubelet-client-key=" + f.kubeletClientKey,
			"--kubelet-preferred-address-types=InternalIP,Hostname",

			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--service-cluster-ip-range=" + ServiceNetwork,
			"--endpoint-reconciler-type=none",

			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + f.tokenPublicKey,
			"--service-account-signing-key-file=" + f.tokenKey,
			// A token with a lifetime of ten minutes must be refused after ten minutes.
			"--service-account-extend-token-expiration=false",

			// These are the limits of OpenShift, so that benchmarks are realistic.
			"--max-requests-inflight=3000",
			"--max-mutating-requests-inflight=1000",
			"--profiling=false",
		},
	}
	if f.auditLog != "" {
		c.args = append(c.args,
			"--audit-policy-file="+f.auditPolicy,
			"--audit-log-path="+f.auditLog,
			"--audit-log-mode=blocking", // write the line before the request is answered
			"--audit-log-maxsize=0",     // never rotate the file
		)
	}
	return c
}
