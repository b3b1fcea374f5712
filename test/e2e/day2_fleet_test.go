package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// The number of API requests that one change may cause for one node. A daemon reads a ConfigMap, watches it, reads a
// Secret and writes its Node. If an object doesn't exist yet, the daemon tries once more. The operator writes the Node,
// and it writes the WindowsInstance's status during the change and at its end. If the change affects pods, the operator
// also requests a slot of the rollout budget, cordons, drains, verifies and releases the slot. At each of these steps,
// it reads the WindowsInstance, the Node and the list of slots from the API server.
const (
	daemonRequests     = 8
	operatorRequests   = 8
	disruptionRequests = 14
)

// Each change of the cluster's settings may cause only a few API requests per node, so that large clusters work. This
// test counts requests, because counts don't depend on the load of the machine. make bench-config measures the time
// with hundreds of nodes. Every row of day 2 asserts that no host sees SSH or a reboot.
func TestA27_AChangeCostsEachNodeTheSameFewRequests(t *testing.T) {
	c := dayTwo(t)
	c.lendSettings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) {
		allAtOnce(spec)
		spec.Trust.AdditionalCA = "windows-cas"
	})
	cas := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "windows-cas"},
		Data:       map[string]string{"bundle": string(newCA(t, "one"))},
	}
	c.put(t, cas)
	c.everywhere(t, "the first CA",
		func(h *fleet.Host) error { return trustsOnce(t, h, cas.Data["bundle"]) })
	base := c.settled(t)
	for _, change := range []struct {
		name string
		make func(t *testing.T)
		// stays: the change is not undone when its row ends.
		stays bool
		// felt: the change affects pods.
		felt bool
	}{
		{name: "A21 kubelet's client CA", make: func(t *testing.T) {
			t.Helper()
			lend(t, c, &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"}},
				func(o *mcfgv1.ControllerConfig) func(*mcfgv1.ControllerConfig) {
					old := o.Spec.KubeAPIServerServingCAData
					o.Spec.KubeAPIServerServingCAData = append(newCA(t, "next"), old...)
					return func(o *mcfgv1.ControllerConfig) { o.Spec.KubeAPIServerServingCAData = old }
				})
		}},
		{name: "A22 a mirror", make: func(t *testing.T) {
			t.Helper()
			c.put(t, &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "day2"},
				Spec: configv1.ImageDigestMirrorSetSpec{
					ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: "registry.invalid/team",
						Mirrors: []configv1.ImageMirror{"mirror.invalid/team"}}},
				}})
		}},
		{name: "A23 the pull secret", make: func(t *testing.T) {
			t.Helper()
			lend(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace,
				Name: contract.PullSecret}}, func(o *corev1.Secret) func(*corev1.Secret) {
				old := o.Data
				o.Data = map[string][]byte{
					corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.invalid":{"auth":"YTpi"}}}`)}
				return func(o *corev1.Secret) { o.Data = old }
			})
		}},
		{name: "A24 the proxy", make: func(t *testing.T) {
			t.Helper()
			lend(t, c, &configv1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}},
				func(o *configv1.Proxy) func(*configv1.Proxy) {
					o.Spec.HTTPProxy = "http://proxy.invalid:3128"
					return func(o *configv1.Proxy) { o.Spec.HTTPProxy = "" }
				})
		}, felt: true},
		{name: "A25 a CA", make: func(t *testing.T) {
			t.Helper()
			edit(t, c, cas, func(o *corev1.ConfigMap) { o.Data["bundle"] = string(newCA(t, "another")) })
		}, stays: true},
	} {
		t.Run(change.name, func(t *testing.T) {
			// Count only after the previous change is undone on every node.
			was, err := c.settle(t.Context(), base)
			must(t, err)
			began := time.Now()
			change.make(t)
			c.everywhere(t, "every node to leave the old revision", func(h *fleet.Host) error {
				return moved(c.node(t,
					h), was)
			})
			if now := c.settled(t); change.stays {
				base = now
			}
			daemon, operator := c.requests(t, began)
			most := operatorRequests
			if change.felt {
				most += disruptionRequests
			}
			for _, h := range c.hosts {
				if n := daemon[h.Name]; n == 0 || n > daemonRequests {
					t.Errorf("the daemon of %s made %d requests, want 1 to %d", h.Name, n, daemonRequests)
				}
				if n := operator[h.Name]; n == 0 || n > most {
					t.Errorf("the operator made %d requests because of %s, want 1 to %d", n, h.Name, most)
				}
			}
			t.Logf("requests of daemons %v, of the operator %v", daemon, operator)
		})
	}
}

// requests counts the API requests for each host since a time: those of its daemon, and those of the operator about its
// Node and WindowsInstance.
func (c *crew) requests(t *testing.T, since time.Time) (daemon, operator map[string]int) {
	t.Helper()
	daemon, operator = map[string]int{}, map[string]int{}
	of := map[string]string{}
	for _, h := range c.hosts {
		of[h.Name], of[h.Address().Addr().String()] = h.Name, h.Name
	}
	for r, err := range c.Requests() {
		must(t, err)
		if !r.Received.After(since) {
			continue
		}
		if name, ok := strings.CutPrefix(r.User, contract.DaemonUserPrefix); ok && of[name] != "" {
			daemon[name]++
		}
		if strings.HasSuffix(r.User, ":"+contract.OperatorServiceAccount) && of[r.Name] != "" {
			operator[of[r.Name]]++
		}
	}
	return daemon, operator
}

// moved returns an error if a node still has its previous version.
func moved(node *corev1.Node, was string) error {
	if version := node.Annotations[contract.RevisionAnnotation]; version == was {
		return errors.New("the node is still at " + version)
	}
	return nil
}

// trustsOnce returns an error unless a host's root store has a CA exactly once.
func trustsOnce(t *testing.T, h *fleet.Host, certificate string) error {
	t.Helper()
	if n := occurrences(roots(t, h), der(t, []byte(certificate))); n != 1 {
		return fmt.Errorf("the CA is in the root store %d times", n)
	}
	return nil
}
