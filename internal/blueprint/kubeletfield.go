package blueprint

// Why a user may not set a field of kubelet's configuration.
const (
	fieldOurs     = "is the operator's: a node depends on it"
	fieldLinux    = "has no meaning on Windows"
	fieldLogging  = "is set by spec.logging"
	fieldPath     = "is a path of the operator's"
	fieldState    = "can't be changed on a node that has run: kubelet would refuse to start beside its state of before"
	fieldUnproven = "is not supported: the operator can't tell whether kubelet would start with it"
	fieldShutdown = "is not supported: with it, kubelet changes the registry value PreshutdownOrder, which stays " +
		"when " +
		"the host leaves"
	fieldDomain = "is the operator's; without OpenShift it follows spec.network.clusterDomain"
	fieldTaint  = "is the operator's; taints of one host stand in spec.taints of its WindowsInstance"
	fieldMay    = ""
)

// kubeletFields says of every field of a KubeletConfiguration why a user may not set it; those with
// fieldMay they may. A test holds that no field is forgotten, so that a new version of kubelet asks
// for a decision.
func kubeletFields() map[string]string {
	return map[string]string{
		"apiVersion": fieldMay, "kind": fieldMay,

		"authentication": fieldOurs, "authorization": fieldOurs, "address": fieldOurs, "port": fieldOurs,
		"readOnlyPort": fieldOurs, "enableServer": fieldOurs,
		"healthzPort": fieldOurs, "healthzBindAddress": fieldOurs, "tlsCertFile": fieldOurs,
		"tlsPrivateKeyFile": fieldOurs, "rotateCertificates": fieldOurs,
		"serverTLSBootstrap": fieldOurs, "clusterDomain": fieldDomain, "clusterDNS": fieldOurs, "resolvConf": fieldOurs,
		"containerRuntimeEndpoint": fieldOurs,
		"imageServiceEndpoint":     fieldOurs, "registerNode": fieldOurs, "registerWithTaints": fieldTaint,
		"providerID": fieldOurs, "podCIDR": fieldOurs,
		"enableSystemLogHandler": fieldOurs, "enableSystemLogQuery": fieldOurs, "enableDebuggingHandlers": fieldOurs,
		"enableControllerAttachDetach": fieldOurs,
		"contentType":                  fieldOurs, "cgroupsPerQOS": fieldOurs, "enforceNodeAllocatable": fieldOurs,
		"runOnce": fieldOurs, "logging": fieldLogging,

		"staticPodPath": fieldPath, "staticPodURL": fieldPath, "staticPodURLHeader": fieldPath, "podLogsDir": fieldPath,
		"volumePluginDir": fieldPath,

		"kubeletCgroups": fieldLinux, "systemCgroups": fieldLinux, "cgroupRoot": fieldLinux, "cgroupDriver": fieldLinux,
		"systemReservedCgroup": fieldLinux,
		"kubeReservedCgroup":   fieldLinux, "singleProcessOOMKill": fieldLinux, "userNamespaces": fieldLinux,
		"oomScoreAdj": fieldLinux, "hairpinMode": fieldLinux,
		"podPidsLimit": fieldLinux, "cpuCFSQuota": fieldLinux, "cpuCFSQuotaPeriod": fieldLinux,
		"maxOpenFiles": fieldLinux, "protectKernelDefaults": fieldLinux,
		"makeIPTablesUtilChains": fieldLinux, "iptablesMasqueradeBit": fieldLinux, "iptablesDropBit": fieldLinux,
		"failSwapOn": fieldLinux, "memorySwap": fieldLinux,
		"allowedUnsafeSysctls": fieldLinux, "kernelMemcgNotification": fieldLinux, "seccompDefault": fieldLinux,
		"memoryThrottlingFactor":  fieldLinux,
		"memoryReservationPolicy": fieldLinux, "failCgroupV1": fieldLinux, "qosReserved": fieldLinux,

		"cpuManagerPolicy": fieldState, "cpuManagerPolicyOptions": fieldState, "cpuManagerReconcilePeriod": fieldState,
		"memoryManagerPolicy":   fieldState,
		"topologyManagerPolicy": fieldState, "topologyManagerScope": fieldState,
		"topologyManagerPolicyOptions": fieldState, "reservedSystemCPUs": fieldState,
		"reservedMemory": fieldState,

		"showHiddenMetricsForVersion": fieldUnproven, "tracing": fieldUnproven, "tlsCurvePreferences": fieldUnproven,
		"preloadedImagesVerificationAllowlist":   fieldUnproven,
		"imagePullCredentialsVerificationPolicy": fieldUnproven,

		"shutdownGracePeriod": fieldShutdown, "shutdownGracePeriodCriticalPods": fieldShutdown,
		"shutdownGracePeriodByPodPriority": fieldShutdown,

		"maxPods": fieldMay, "podsPerCore": fieldMay, "systemReserved": fieldMay, "kubeReserved": fieldMay,
		"evictionHard": fieldMay, "evictionSoft": fieldMay, "evictionSoftGracePeriod": fieldMay,
		"evictionPressureTransitionPeriod": fieldMay,
		"evictionMaxPodGracePeriod":        fieldMay, "evictionMinimumReclaim": fieldMay,
		"mergeDefaultEvictionSettings": fieldMay,
		"imageMinimumGCAge":            fieldMay, "imageMaximumGCAge": fieldMay,
		"imageGCHighThresholdPercent": fieldMay, "imageGCLowThresholdPercent": fieldMay,
		"containerLogMaxSize": fieldMay, "containerLogMaxFiles": fieldMay, "containerLogMaxWorkers": fieldMay,
		"containerLogMonitorInterval": fieldMay,
		"registryPullQPS":             fieldMay, "registryBurst": fieldMay, "serializeImagePulls": fieldMay,
		"maxParallelImagePulls": fieldMay,
		"kubeAPIQPS":            fieldMay, "kubeAPIBurst": fieldMay, "eventRecordQPS": fieldMay, "eventBurst": fieldMay,
		"syncFrequency": fieldMay, "fileCheckFrequency": fieldMay, "httpCheckFrequency": fieldMay,
		"runtimeRequestTimeout":          fieldMay,
		"streamingConnectionIdleTimeout": fieldMay, "nodeStatusUpdateFrequency": fieldMay,
		"nodeStatusReportFrequency": fieldMay, "nodeLeaseDurationSeconds": fieldMay,
		"nodeStatusMaxImages": fieldMay, "volumeStatsAggPeriod": fieldMay,
		"configMapAndSecretChangeDetectionStrategy": fieldMay,
		"crashLoopBackOff":                          fieldMay, "localStorageCapacityIsolation": fieldMay,
		"tlsCipherSuites": fieldMay, "tlsMinVersion": fieldMay, "enableContentionProfiling": fieldMay,
		"enableProfilingHandler":  fieldMay,
		"enableDebugFlagsHandler": fieldMay, "featureGates": fieldMay,
	}
}
