package blueprint

import (
	"crypto/tls"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// Limits of values: kubelet accepts larger values, but the node would not work with them.
const (
	// maxLease is the maximum duration of a node's lease, in seconds. kubelet renews the lease after a quarter of this
	// duration, so after at most 30 s. A node counts as lost after 40 to 50 s without a renewal.
	maxLease = 120
	// maxPodsOfSubnet limits the pods on a node. A node's default subnet, a /23, has slightly more addresses.
	maxPodsOfSubnet = 500
)

// valueFlaws describes the values that would prevent kubelet from starting, or the node from working. It checks only
// fields that users may set. https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
func valueFlaws(c kubeletconfigv1beta1.KubeletConfiguration) (words []string) {
	v := &values{}
	v.numbers(c)
	v.images(c)
	v.durations(c)
	v.containerLogs(c)
	v.reserved("systemReserved", c.SystemReserved)
	v.reserved("kubeReserved", c.KubeReserved)
	v.eviction(c)
	v.tls(c)
	switch c.ConfigMapAndSecretChangeDetectionStrategy {
	case "", kubeletconfigv1beta1.GetChangeDetectionStrategy, kubeletconfigv1beta1.TTLCacheChangeDetectionStrategy,
		kubeletconfigv1beta1.WatchChangeDetectionStrategy:
	default:
		v.complain("configMapAndSecretChangeDetectionStrategy is not Get, Cache or Watch")
	}
	slices.Sort(v.words)
	return v.words
}

type values struct{ words []string }

func (v *values) complain(format string, args ...any) {
	v.words = append(v.words, fmt.Sprintf(format, args...))
}

func (v *values) within(field string, value *int32, low, high int32) {
	if value != nil && (*value < low || *value > high) {
		v.complain("%s is %d, not from %d to %d", field, *value, low, high)
	}
}

const anyNumber = 1<<31 - 1

func (v *values) numbers(c kubeletconfigv1beta1.KubeletConfiguration) {
	v.within("maxPods", &c.MaxPods, 1, maxPodsOfSubnet)
	v.within("podsPerCore", &c.PodsPerCore, 0, anyNumber)
	v.within("evictionMaxPodGracePeriod", &c.EvictionMaxPodGracePeriod, 0, anyNumber)
	v.within("registryPullQPS", c.RegistryPullQPS, 0, anyNumber)
	v.within("registryBurst", &c.RegistryBurst, 0, anyNumber)
	v.within("kubeAPIQPS", c.KubeAPIQPS, 1, anyNumber)
	v.within("kubeAPIBurst", &c.KubeAPIBurst, 1, anyNumber)
	v.within("eventRecordQPS", c.EventRecordQPS, 0, anyNumber)
	v.within("eventBurst", &c.EventBurst, 0, anyNumber)
	v.within("nodeStatusMaxImages", c.NodeStatusMaxImages, -1, anyNumber)
	if c.NodeLeaseDurationSeconds != 0 { // 0 means kubelet's default
		v.within("nodeLeaseDurationSeconds", &c.NodeLeaseDurationSeconds, 4, maxLease)
	}
}

func (v *values) images(c kubeletconfigv1beta1.KubeletConfiguration) {
	v.within("imageGCHighThresholdPercent", c.ImageGCHighThresholdPercent, 0, 100)
	v.within("imageGCLowThresholdPercent", c.ImageGCLowThresholdPercent, 0, 100)
	if ptr.Deref(c.ImageGCLowThresholdPercent, 80) >= ptr.Deref(c.ImageGCHighThresholdPercent, 85) {
		v.complain("imageGCLowThresholdPercent is not less than imageGCHighThresholdPercent")
	}
	if oldest := c.ImageMaximumGCAge.Duration; oldest > 0 && oldest <= max(c.ImageMinimumGCAge.Duration, 0) {
		v.complain("imageMaximumGCAge is not greater than imageMinimumGCAge")
	}
	v.within("maxParallelImagePulls", c.MaxParallelImagePulls, 1, anyNumber)
	if ptr.Deref(c.SerializeImagePulls, false) && ptr.Deref(c.MaxParallelImagePulls, 1) > 1 {
		v.complain("maxParallelImagePulls is more than 1 though serializeImagePulls is true")
	}
}

func (v *values) durations(c kubeletconfigv1beta1.KubeletConfiguration) {
	all := reflect.ValueOf(c)
	for _, field := range reflect.VisibleFields(all.Type()) {
		if d, is := all.FieldByIndex(field.Index).Interface().(metav1.Duration); is && d.Duration < 0 {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			v.complain("%s is negative", name)
		}
	}
	if d := c.RuntimeRequestTimeout.Duration; d != 0 && d < time.Minute {
		v.complain("runtimeRequestTimeout is less than the minute that starting a Windows container may take")
	}
	if d := c.NodeStatusUpdateFrequency.Duration; d > 30*time.Second {
		v.complain("nodeStatusUpdateFrequency is more than 30s, so that the node would count as lost")
	}
	if p := c.CrashLoopBackOff.MaxContainerRestartPeriod; p != nil &&
		(p.Duration < time.Second || p.Duration > 5*time.Minute) {
		v.complain("crashLoopBackOff.maxContainerRestartPeriod is not from 1s to 5m")
	}
}

func (v *values) containerLogs(c kubeletconfigv1beta1.KubeletConfiguration) {
	v.within("containerLogMaxFiles", c.ContainerLogMaxFiles, 2, anyNumber)
	v.within("containerLogMaxWorkers", c.ContainerLogMaxWorkers, 1, anyNumber)
	if d := c.ContainerLogMonitorInterval; d != nil && d.Duration < 3*time.Second {
		v.complain("containerLogMonitorInterval is less than 3s")
	}
	if size := c.ContainerLogMaxSize; size != "" {
		if q, err := resource.ParseQuantity(size); err != nil {
			v.complain("containerLogMaxSize is not a size such as 50Mi")
		} else if _, whole := q.AsInt64(); !whole || q.Sign() == 0 {
			v.complain("containerLogMaxSize is not a whole number of bytes")
		}
	}
}

func (v *values) reserved(field string, amounts map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		switch name {
		case "cpu", "memory", "ephemeral-storage":
			if q, err := resource.ParseQuantity(amounts[name]); err != nil || q.Sign() < 0 {
				v.complain("%s.%s is not an amount such as 500m or 2Gi", field, name)
			}
		default:
			v.complain("%s.%s is not cpu, memory or ephemeral-storage", field, shorten(name))
		}
	}
}

func (v *values) eviction(c kubeletconfigv1beta1.KubeletConfiguration) {
	v.thresholds("evictionHard", c.EvictionHard)
	v.thresholds("evictionSoft", c.EvictionSoft)
	v.thresholds("evictionMinimumReclaim", c.EvictionMinimumReclaim)
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		if d, err := time.ParseDuration(c.EvictionSoftGracePeriod[signal]); err != nil || d < 0 {
			v.complain("evictionSoftGracePeriod.%s is missing or no duration", shorten(signal))
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoftGracePeriod)) {
		if _, ok := c.EvictionSoft[signal]; !ok {
			v.complain("evictionSoftGracePeriod.%s is there without evictionSoft.%[1]s", shorten(signal))
		}
	}
	if memory := c.EvictionHard["memory.available"]; memory == "0%" || memory == "100%" {
		v.complain("evictionHard.memory.available is %s, which would switch it off: the node would run out of memory",
			memory)
	}
}

func (v *values) thresholds(field string, all map[string]string) {
	for _, signal := range slices.Sorted(maps.Keys(all)) {
		switch signal {
		case "memory.available", "nodefs.available", "imagefs.available", "containerfs.available":
		default:
			v.complain("%s.%s is no signal that Windows nodes have", field, shorten(signal))
			continue
		}
		if number, percent := strings.CutSuffix(all[signal], "%"); percent {
			if n, err := strconv.ParseFloat(number, 32); err != nil || n < 0 || n > 100 {
				v.complain("%s.%s is not a percentage from 0%% to 100%%", field, signal)
			}
			continue
		}
		if q, err := resource.ParseQuantity(all[signal]); err != nil || q.Sign() < 0 || q.Sign() == 0 &&
			field != "evictionMinimumReclaim" {
			v.complain("%s.%s is not an amount such as 500Mi, or a percentage", field, signal)
		}
	}
}

func (v *values) tls(c kubeletconfigv1beta1.KubeletConfiguration) {
	known := map[string]bool{}
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		known[suite.Name] = true
	}
	for _, name := range c.TLSCipherSuites {
		if !known[name] {
			v.complain("tlsCipherSuites has %s, which is none", shorten(name))
		}
	}
	switch c.TLSMinVersion {
	case "", "VersionTLS12", "VersionTLS13":
	default:
		v.complain("tlsMinVersion is not VersionTLS12 or VersionTLS13")
	}
}
