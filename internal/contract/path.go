package contract

// Directories on a node. All are on the system drive. Users rely on these paths.
const (
	DirK         = `C:\k`
	DirCNI       = `C:\k\cni`
	DirCNIConfig = `C:\k\cni\config`
	// DirExternalCNI and DirExternalCNIConfig are the directories of an external network's CNI plugins and their
	// configuration. The operator writes nothing there.
	DirExternalCNI       = `C:\opt\cni\bin`
	DirExternalCNIConfig = `C:\etc\cni\net.d`
	DirContainerd        = `C:\k\containerd`
	DirRegistries        = `C:\k\containerd\registries`
	DirManifests         = `C:\k\etc\kubernetes\manifests`
	// DirVolumePlugins is the directory of FlexVolume drivers. kubelet runs the programs in it when it starts.
	DirVolumePlugins = `C:\k\volume-plugins`
	DirTLS           = `C:\k\tls`
	DirDaemonCerts   = `C:\k\wicd-certs`
	// DirStore contains verified payload blobs. The name of each blob is its lower-case hex SHA-256. Managed files are
	// copies of blobs, so that the daemon can repair a damaged or missing file without the operator.
	DirStore = `C:\k\store`
	// DirMetrics contains files with metrics that windows_exporter serves in addition to its own metrics.
	DirMetrics    = `C:\k\metrics`
	DirLog        = `C:\var\log`
	DirDaemonLog  = DirLog + `\wicd`
	DirTemp       = `C:\Temp`
	DirKubelet    = `C:\var\lib\kubelet`
	DirKubeletPKI = `C:\var\lib\kubelet\pki`
	// DirContainerdData contains images and containers' file systems.
	DirContainerdData = `C:\ProgramData\containerd`
)

// Files on a node.
const (
	PathKubelet       = `C:\k\kubelet.exe`
	PathKubeProxy     = `C:\k\kube-proxy.exe`
	PathKubeLogRunner = `C:\k\kube-log-runner.exe`
	PathHybridOverlay = `C:\k\hybrid-overlay-node.exe`
	PathFlannel       = `C:\k\flanneld.exe`
	// PathServiceWrapper is the program that runs an ordinary program as a Windows service.
	PathServiceWrapper   = `C:\k\service-wrapper.exe`
	PathCSIProxy         = `C:\k\csi-proxy.exe`
	PathWindowsExporter  = `C:\k\windows_exporter.exe`
	PathAzureNodeManager = `C:\k\azure-cloud-node-manager.exe`
	PathECRProvider      = `C:\k\ecr-credential-provider.exe`
	PathDaemon           = `C:\k\windows-instance-config-daemon.exe`
	PathContainerd       = `C:\k\containerd\containerd.exe`
	PathContainerdShim   = `C:\k\containerd\containerd-shim-runhcs-v1.exe`
	PathContainerdConfig = `C:\k\containerd\containerd_conf.toml`
	// PathHosts is the file that containerd reads for each registry that has no folder in DirRegistries.
	PathHosts               = `C:\k\containerd\registries\_default\hosts.toml`
	PathCNIConfig           = `C:\k\cni\config\cni.conf`
	PathKubeletConfig       = `C:\k\kubelet.conf`
	PathKubeletCA           = `C:\k\kubelet-ca.crt`
	PathBootstrapCA         = `C:\k\bootstrap-ca.crt`
	PathBootstrapKubeconfig = `C:\k\bootstrap-kubeconfig`
	PathKubeconfig          = `C:\k\kubeconfig`
	PathDaemonKubeconfig    = `C:\k\wicd-kubeconfig`
	PathDaemonCertificate   = `C:\k\wicd-certs\wicd-client-current.pem`
	PathCloudNodeToken      = `C:\k\wicd-certs\cloud-node-token`
	PathCloudNodeKubeconfig = `C:\k\wicd-certs\cloud-node-kubeconfig`
	PathFlannelToken        = `C:\k\wicd-certs\flanneld-token`
	PathFlannelKubeconfig   = `C:\k\wicd-certs\flanneld-kubeconfig`
	// PathFlannelConfig is flanneld's configuration. flanneld writes the node's subnet to PathFlannelSubnet.
	PathFlannelConfig     = `C:\k\flannel\net-conf.json`
	PathFlannelSubnet     = `C:\k\flannel\subnet.env`
	PathKubeProxyConfig   = `C:\k\kube-proxy.conf`
	PathExporterWebConfig = `C:\k\tls\windows-exporter-webconfig.yaml`
	// PathKubeletServingPair contains kubelet's serving certificate and key. It doesn't exist before kubelet has them.
	PathKubeletServingPair = `C:\var\lib\kubelet\pki\kubelet-server-current.pem`
	// PathState is the state file: what the daemon applied and created, and what existed before, for cleanup.
	PathState = `C:\k\wicd-state.json`
	// PathDaemonLog is the daemon's log. Users' log collectors expect this name.
	PathDaemonLog = DirDaemonLog + `\` + ServiceDaemon + `.exe.INFO`
	// PathReport is the daemon's report about the host, for people: a NodeReport as JSON.
	PathReport = DirDaemonLog + `\report.json`
	// PathLock exists only while a verb runs or the daemon checks that none runs. Ordinary users can't create it.
	PathLock = `C:\Windows\windows-instance-config-daemon.lock`
	// PathMetrics are the daemon's counters in Prometheus' text format.
	PathMetrics = `C:\k\metrics\wicd.prom`
)

// The RPC directory is in the SSH user's home directory. Only that user, Administrators and SYSTEM may open it. File
// names are relative to the home directory, and contain no characters that cmd.exe or PowerShell would interpret.
const (
	// RPCDir contains the uploaded daemon, requests, answers and the payload stream.
	RPCDir = ".wmco"
)
