package e2e_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
)

func TestDayTwo_KubeletsConfigurationReachesItAndRestartsOnlyThoseThatNeedIt(t *testing.T) {
	c := dayTwo(t)
	before := pids(t, c.hosts...)
	c.lendSettings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) {
		allAtOnce(spec)
		spec.Kubelet.Config = &runtime.RawExtension{Raw: []byte(`{"maxPods":42}`)}
	})
	c.everywhere(t, "kubelet's configuration", func(h *fleet.Host) error {
		content, err := winos.ReadFile(h.Machine.Host().Files, contract.PathKubeletConfig)
		if err != nil {
			return err
		}
		var config struct{ MaxPods int }
		if err = json.Unmarshal(content, &config); err != nil || config.MaxPods != 42 {
			return fmt.Errorf("kubelet's maximum is %d pods, %w", config.MaxPods, err)
		}
		return nil
	})
	c.settled(t)
	restarted(t, before, c.hosts, contract.ServiceKubelet, contract.ServiceHybridOverlay, contract.ServiceKubeProxy)
}
