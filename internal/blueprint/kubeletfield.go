package blueprint

import "strings"

// Reasons why users may not set a field of kubelet's configuration.
const (
	fieldOurs     = "is the operator's: a node depends on it"
	fieldLinux    = "has no meaning on Windows"
	fieldLogging  = "is set by spec.logging"
	fieldPath     = "is a path of the operator's"
	fieldState    = "can't be changed on a node that has run: kubelet would refuse to start with its old state"
	fieldUnproven = "is not supported: the operator can't tell whether kubelet would start with it"
	fieldShutdown = "is not supported: with it, kubelet changes the registry value PreshutdownOrder, which stays " +
		"when the host leaves"
	fieldDomain = "is the operator's; without OpenShift it follows spec.network.clusterDomain"
	fieldTaint  = "is the operator's; taints of one host stand in spec.taints of its WindowsInstance"
	fieldMay    = ""
)

// kubeletFields maps each field of a KubeletConfiguration to the reason why users may not set it, or to "" if they may.
// A test ensures that no field is forgotten, so a new version of kubelet needs a decision.
func kubeletFields() map[string]string {
	all := map[string]string{}
	for why, names := range map[string]string{
		fieldOurs: `authentication authorization address port readOnlyPort enableServer healthzPort healthzBindAddress
			tlsCertFile tlsPrivateKeyFile rotateCertificates serverTLSBootstrap clusterDNS resolvConf
			containerRuntimeEndpoint imageServiceEndpoint registerNode providerID podCIDR enableSystemLogHandler
			enableSystemLogQuery enableDebuggingHandlers enableControllerAttachDetach contentType cgroupsPerQOS
			enforceNodeAllocatable runOnce`,
		fieldDomain:  `clusterDomain`,
		fieldTaint:   `registerWithTaints`,
		fieldLogging: `logging`,
		fieldPath:    `staticPodPath staticPodURL staticPodURLHeader podLogsDir volumePluginDir`,
		fieldLinux: `kubeletCgroups systemCgroups cgroupRoot cgroupDriver systemReservedCgroup kubeReservedCgroup
			singleProcessOOMKill userNamespaces oomScoreAdj hairpinMode podPidsLimit cpuCFSQuota
			cpuCFSQuotaPeriod maxOpenFiles protectKernelDefaults makeIPTablesUtilChains iptablesMasqueradeBit
			iptablesDropBit failSwapOn memorySwap allowedUnsafeSysctls kernelMemcgNotification seccompDefault
			memoryThrottlingFactor memoryReservationPolicy failCgroupV1 qosReserved`,
		fieldState: `cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod memoryManagerPolicy
			topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions reservedSystemCPUs
			reservedMemory`,
		fieldUnproven: `showHiddenMetricsForVersion tracing tlsCurvePreferences preloadedImagesVerificationAllowlist
			imagePullCredentialsVerificationPolicy`,
		fieldShutdown: `shutdownGracePeriod shutdownGracePeriodCriticalPods shutdownGracePeriodByPodPriority`,
		fieldMay: `apiVersion kind maxPods podsPerCore systemReserved kubeReserved evictionHard evictionSoft
			evictionSoftGracePeriod evictionPressureTransitionPeriod evictionMaxPodGracePeriod
			evictionMinimumReclaim mergeDefaultEvictionSettings imageMinimumGCAge imageMaximumGCAge
			imageGCHighThresholdPercent imageGCLowThresholdPercent containerLogMaxSize containerLogMaxFiles
			containerLogMaxWorkers containerLogMonitorInterval registryPullQPS registryBurst serializeImagePulls
			maxParallelImagePulls kubeAPIQPS kubeAPIBurst eventRecordQPS eventBurst syncFrequency
			fileCheckFrequency httpCheckFrequency runtimeRequestTimeout streamingConnectionIdleTimeout
			nodeStatusUpdateFrequency nodeStatusReportFrequency nodeLeaseDurationSeconds nodeStatusMaxImages
			volumeStatsAggPeriod configMapAndSecretChangeDetectionStrategy crashLoopBackOff
			localStorageCapacityIsolation tlsCipherSuites tlsMinVersion enableContentionProfiling
			enableProfilingHandler enableDebugFlagsHandler featureGates`,
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = why
		}
	}
	return all
}
