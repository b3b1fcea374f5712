package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
)

// A Secret may have 1 MiB. The settings come first, and facts that don't fit beside them are left out.
func TestA80_SettingsAndFactsThatAreRememberedFitIntoOneSecret(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(strings.Repeat("a", 700<<10))
	if err != nil {
		t.Fatal(err)
	}
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	config.Spec.Proxy.NoProxy = strings.Repeat("b", 400<<10)
	data, err := cluster.Memory(config, map[string]json.RawMessage{"large": text, "small": []byte(`"c"`)})
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, value := range data {
		size += len(value)
	}
	if size > 1<<20 || !strings.Contains(string(data["settings"]), "bbb") ||
		!strings.Contains(string(data["facts"]), `"small":"c"`) {
		t.Errorf("%d bytes: settings %.30s, facts %.30s", size, data["settings"], data["facts"])
	}
}
