package contract

// Directories on a node. All lie on the system drive, as users know them.
const (
	DirK         = `C:\k`
	DirCNI       = `C:\k\cni`
	DirCNIConfig = `C:\k\cni\config`
	// DirExternalCNI and DirExternalCNIConfig are where an external network puts its CNI plugins
	// and their configuration. The operator writes nothing there.
	DirExternalCNI       = `C:\opt\cni\bin`
	DirExternalCNIConfig = `C:\etc\cni\net.d`
	DirContainerd        = `C:\k\containerd`
	DirRegistries        = `C:\k\containerd\registries`
	DirManifests         = `C:\k\etc\kubernetes\manifests`
	// DirVolumePlugins is where kubelet looks for FlexVolume drivers, which it runs when it starts.
	DirVolumePlugins = `C:\k\volume-plugins`
	DirTLS           = `C:\k\tls`
	DirDaemonCerts   = `C:\k\wicd-certs`
	// DirStore holds verified payload blobs, each named by its lower-case hex SHA-256. Managed
	// files are copies of them, so that a damaged or missing file is repaired without the operator.
	DirStore = `C:\k\store`
	// DirSealed is where older daemons keep confidential parts of manifests. The daemon deletes it.
	DirSealed = `C:\k\wicd-sealed`
	// DirMetrics holds metrics that windows_exporter serves in addition to its own.
	DirMetrics    = `C:\k\metrics`
	DirLog        = `C:\var\log`
	DirDaemonLog  = DirLog + `\wicd`
	DirTemp       = `C:\Temp`
	DirKubelet    = `C:\var\lib\kubelet`
	DirKubeletPKI = `C:\var\lib\kubelet\pki`
	// DirContainerdData holds images and containers' file systems.
	DirContainerdData = `C:\ProgramData\containerd`
)

// Files on a node.
const (
	PathKubelet       = `C:\k\kubelet.exe`
	PathKubeProxy     = `C:\k\kube-proxy.exe`
	PathKubeLogRunner = `C:\k\kube-log-runner.exe`
	PathHybridOverlay = `C:\k\hybrid-overlay-node.exe`
	PathFlannel       = `C:\k\flanneld.exe`
	// PathServiceWrapper runs a program that is no Windows service as one.
	PathServiceWrapper      = `C:\k\service-wrapper.exe`
	PathCSIProxy            = `C:\k\csi-proxy.exe`
	PathWindowsExporter     = `C:\k\windows_exporter.exe`
	PathAzureNodeManager    = `C:\k\azure-cloud-node-manager.exe`
	PathECRProvider         = `C:\k\ecr-credential-provider.exe`
	PathDaemon              = `C:\k\windows-instance-config-daemon.exe`
	PathContainerd          = `C:\k\containerd\containerd.exe`
	PathContainerdShim      = `C:\k\containerd\containerd-shim-runhcs-v1.exe`
	PathContainerdConfig    = `C:\k\containerd\containerd_conf.toml`
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
	// PathFlannelConfig is flanneld's configuration, and PathFlannelSubnet where it writes the
	// subnet of the node.
	PathFlannelConfig     = `C:\k\flannel\net-conf.json`
	PathFlannelSubnet     = `C:\k\flannel\subnet.env`
	PathKubeProxyConfig   = `C:\k\kube-proxy.conf`
	PathExporterWebConfig = `C:\k\tls\windows-exporter-webconfig.yaml`
	// PathKubeletServingPair is what kubelet serves with, certificate and key, once it has one.
	PathKubeletServingPair = `C:\var\lib\kubelet\pki\kubelet-server-current.pem`
	// PathState is the daemon's own record: what it applied, what it created, what it found before.
	// It is what makes cleanup exact.
	PathState = `C:\k\wicd-state.json`
	// PathDaemonLog is the daemon's log, under the name that log collectors of users fetch.
	PathDaemonLog = DirDaemonLog + `\` + ServiceDaemon + `.exe.INFO`
	// PathReport is the daemon's report about the host, for people: a NodeReport as JSON.
	PathReport = DirDaemonLog + `\report.json`
	// PathLock is there while a verb runs, or the daemon makes sure that none does, and only then. No ordinary user may
	// make a file there.
	PathLock = `C:\Windows\windows-instance-config-daemon.lock`
	// PathMetrics are the daemon's counters in Prometheus' text format.
	PathMetrics = `C:\k\metrics\wicd.prom`
)

// The RPC directory lies in the SSH user's home, which only that user, Administrators and
// SYSTEM may open. Names in it are relative to that home and contain no character that cmd.exe or
// PowerShell would interpret.
const (
	// RPCDir holds the uploaded daemon, requests, answers and the payload stream.
	RPCDir = ".wmco"
)
