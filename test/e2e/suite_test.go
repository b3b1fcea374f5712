package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/registry"
	"github.com/windows-nodes/wmco/lab/scene"
)

// kind is a kind of cluster, with the network of its nodes.
type kind struct {
	name    string
	network v1alpha1.NetworkType
	// services of its nodes in addition to everywhereServices.
	services []string
}

// kinds returns the kinds of clusters without OpenShift.
func kinds() []kind {
	return []kind{
		{"External", v1alpha1.NetworkExternal, nil},
		{"flannel", v1alpha1.NetworkFlannel, []string{contract.ServiceFlannel, contract.ServiceKubeProxy}},
	}
}

// ground is a cluster with nodes where suites run, one after the other.
type ground struct {
	kind
	*trip
	crew    *crew
	options scene.Options
}

// suite is a test that is the same on OpenShift and on clusters without OpenShift.
type suite struct {
	name string
	// openShift is the test that runs the same function on OpenShift, with its own hosts. It is empty if there is
	// none.
	openShift string
	// only is the only kind of cluster that it runs on, if other kinds don't differ. Empty means all kinds.
	only string
	run  func(t *testing.T, g *ground)
}

// suites returns the suites in the order of their execution. The suites of day 2 disrupt all nodes at once, so suites
// that observe disruptions come after them. Suites that remove hosts are near the end.
func suites() []suite {
	return []suite{
		{"A02 a join is cheap", "TestA02_EachEntryBecomesANode", "", func(t *testing.T, g *ground) {
			cheaplyJoined(t, g.crew.hosts...)
		}},
		{"A04 nodes are whole", "TestA04_NodesAreWhole", "", func(t *testing.T, g *ground) {
			g.crew.whole(t, g.crew.hosts...)
		}},
		{"A05 annotations are right", "TestA05_AnnotationsOfTheContractAreRight", "", func(t *testing.T, g *ground) {
			g.crew.annotated(t, g.crew.hosts[0])
		}},
		{"A06 services are those of the network", "TestA06_ExpectedServicesRunAndNoOthers", "",
			func(t *testing.T, g *ground) {
				for _, h := range g.crew.hosts {
					g.crew.runsExactly(t, h, append(everywhereServices(), g.services...))
				}
			}},
		{"A07 the operator lets nodes in", "TestA07_AllRequestsOfOurNodesAreApprovedByUs", "",
			func(t *testing.T, g *ground) {
				g.crew.nothingOfOpenShift(t)
				g.crew.letInByTheOperator(t, g.crew.hosts)
			}},
		{"A60 network", "", "",
			func(t *testing.T, g *ground) {
				if g.network == v1alpha1.NetworkFlannel {
					g.crew.flannel(t)
				} else {
					g.crew.external(t)
				}
			}},
		{"A13 drift", "TestA13_DriftIsRepairedWithoutTheOperator", "", func(t *testing.T, g *ground) {
			g.crew.row(t)
			driftIsRepaired(t, g.crew, func(d drift) bool { return d.network })
		}},
		{"A21 client CA", "TestA21_AnotherClientCAOfKubeletReachesEveryNodeWithoutARestart", "External",
			func(t *testing.T, g *ground) {
				g.crew.row(t)
				clientCAChanges(t, g.crew)
			}},
		{"A22 A24 A25 mirror, proxy and CA", "TestA22A24A25_AMirrorAProxyAndACAReachNodesTogether", "",
			func(t *testing.T, g *ground) {
				g.crew.row(t)
				settingsReach(t, g.crew)
			}},
		{"A23 pull secret", "TestA23_TheNextPullUsesTheChangedPullSecret", "External", func(t *testing.T, g *ground) {
			g.crew.row(t)
			pullSecretChanges(t, g.crew)
		}},
		{"A29 upgrade", "TestA29_OnlyWhatChangedIsSentWhileTheNodeServes", "", func(t *testing.T, g *ground) {
			g.sendsOnlyWhatChanged(t)
			g.onNetwork(t)
		}},
		{"A29 rollback", "TestA29_AVersionThatFailsIsRolledBackReportedAndHalted", "", func(t *testing.T, g *ground) {
			g.halts(t, scene.Change{Versions: map[string]string{kubeletExe: "v1.36.5"}, Failing: []string{kubeletExe}})
			g.passes(t)
			g.onNetwork(t)
		}},
		{"A30 reboot", "TestA30_AHostIsRebootedWhenAskedAndOnlyOurCordonIsLifted", "",
			func(t *testing.T, g *ground) {
				g.rebootsWhenAsked(t, g.hosts...)
				g.onNetwork(t)
			}},
		{"A35 secrets", "TestA35_NothingThatWasToldIsASecret", "External", func(t *testing.T, g *ground) {
			g.crew.nothingToldIsSecret(t, g.crew.account(t, contract.OperatorNamespace, "node-bootstrapper"))
		}},
		{"A32 leave", "TestA32_TheListIsDeleted", "", func(t *testing.T, g *ground) {
			h := g.crew.hosts[0]
			g.crew.drop(t, h)
			g.crew.gone(t, h)
			g.crew.clean(t, h)
			g.crew.ready(t, g.crew.hosts[1:]...)
		}},
		{"A11 the operator is killed again and again", "TestA11_TheOperatorIsKilledAgainAndAgainDuringJoins", "",
			func(t *testing.T, g *ground) {
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				g.crew.joinsAndLeavesKilled(t, g.crew.hosts[:1], rand.New(rand.NewPCG(seed, 0)), 4, 2)
			}},
		{"A36 rights", "TestA36_EveryRightIsUsedAndNoneIsMissing", "", func(t *testing.T, g *ground) {
			g.crew.nothingRefused(t, contract.OperatorNamespace)
			seen := observe(t, g.crew.stage)
			for _, r := range unused(shippedForKubernetes(t, g.crew.stage), seen) {
				t.Errorf("nothing here needs this right: %v", r)
			}
		}},
	}
}

func TestA60A62_SuitesHoldOnEveryKindOfCluster(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			o := rolling(2, 1)
			o.Scheduler, o.Kubernetes, o.Settings.Network.Type = false, true, k.network
			o.Settings.Rollout.VerifyTimeout = &metav1.Duration{Duration: time.Minute}
			s := own(t, o)
			g := &ground{kind: k, options: o,
				crew: newCrew(t, s, *o.Settings, inTheConfig(), s.hosts(t, o.Hosts.Count)...)}
			g.crew.join(t, g.crew.hosts...)
			for _, suite := range suites() {
				if suite.only != "" && suite.only != k.name {
					continue
				}
				if g.trip == nil && strings.HasPrefix(suite.name, "A29") {
					g.trip = s.observed(t, o, g.crew.hosts)
				}
				began := time.Now()
				if !t.Run(suite.name, func(t *testing.T) { suite.run(t, g) }) {
					return
				}
				t.Logf("%s: after %s", suite.name, time.Since(began).Round(time.Millisecond))
			}
		})
	}
}

// onNetwork checks that nodes take part in the network of their kind of cluster.
func (g *ground) onNetwork(t *testing.T) {
	t.Helper()
	if g.network == v1alpha1.NetworkFlannel {
		for _, h := range g.crew.hosts {
			g.crew.onFlannel(t, h)
		}
	}
}

// docs/testing.md must list on which clusters each suite runs. Each test that a suite names for OpenShift must exist.
func TestSuitesAreOnThePageAboutTesting(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "testing.md"))
	must(t, err)
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	var source strings.Builder
	for _, name := range files {
		content, err := os.ReadFile(name)
		must(t, err)
		source.Write(content)
	}
	for _, s := range suites() {
		on := "yes | yes"
		switch s.only {
		case "External":
			on = "yes | no"
		case "flannel":
			on = "no | yes"
		}
		_, test, _ := strings.Cut(s.openShift, "_")
		if s.openShift == "" {
			test = "no"
		}
		row := regexp.MustCompile(regexp.QuoteMeta(fmt.Sprintf("| %s | %s | %s |", s.name, test, on)))
		if !row.Match(page) {
			t.Errorf("docs/testing.md lacks the row %s", row)
		}
		if s.openShift != "" && !strings.Contains(source.String(), "func "+s.openShift+"(") {
			t.Errorf("%s: there is no test %s", s.name, s.openShift)
		}
	}
}

// means are the ways in which an administrator configures the nodes on one kind of cluster.
type means struct {
	// declare applies the settings until the row is over.
	declare func(t *testing.T, c *crew, d declared)
	// addClientCA adds a CA to the CAs of kubelets' clients until the row is over, and returns the previous CAs.
	addClientCA func(t *testing.T, c *crew, added []byte) (old []byte)
	// pullSecret is the Secret that contains declared.logins.
	pullSecret client.ObjectKey
}

// declared holds the settings that an administrator declares.
type declared struct {
	proxy v1alpha1.ProxySpec
	// trustBundle contains CAs that nodes trust for every purpose. signer is the CA that signs the registries'
	// certificates.
	trustBundle string
	signer      *registry.CA
	registries  []*registry.Registry
	mirrors     []v1alpha1.ImageMirrors
	// logins are the content of the pull secret, if any.
	logins []byte
	// atOnce lets changes that restart services reach all nodes at once.
	atOnce bool
}

// settings writes to spec the settings that are in the WindowsMachineConfig on every kind of cluster.
func (d declared) settings(t *testing.T, c *crew, spec *v1alpha1.WindowsMachineConfigSpec) {
	t.Helper()
	if d.trustBundle != "" {
		c.put(t, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "windows-cas"},
			Data:       map[string]string{"bundle": d.trustBundle},
		})
		spec.Trust.AdditionalCA = "windows-cas"
	}
	if d.atOnce {
		allAtOnce(spec)
	}
}

// onOpenShift returns the means on OpenShift: objects of OpenShift.
func onOpenShift() means {
	return means{
		pullSecret: client.ObjectKey{Namespace: contract.ConfigNamespace, Name: contract.PullSecret},
		declare: func(t *testing.T, c *crew, d declared) {
			t.Helper()
			c.lendSettings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) { d.settings(t, c, spec) })
			if d.registries != nil {
				c.trustRegistries(t, d.signer, d.registries...)
			}
			for i, m := range d.mirrors {
				rule := configv1.ImageDigestMirrors{Source: m.Source}
				for _, mirror := range m.Mirrors {
					rule.Mirrors = append(rule.Mirrors, configv1.ImageMirror(mirror))
				}
				c.put(t, &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("declared-%d", i)},
					Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{rule}}})
			}
			if d.logins != nil {
				lend(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace,
					Name: contract.PullSecret}}, func(o *corev1.Secret) func(*corev1.Secret) {
					old := o.Data
					o.Data = map[string][]byte{corev1.DockerConfigJsonKey: d.logins}
					return func(o *corev1.Secret) { o.Data = old }
				})
			}
			if d.proxy != (v1alpha1.ProxySpec{}) {
				lend(t, c, &configv1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}},
					func(o *configv1.Proxy) func(*configv1.Proxy) {
						o.Spec = configv1.ProxySpec{HTTPProxy: d.proxy.HTTPProxy, HTTPSProxy: d.proxy.HTTPSProxy,
							NoProxy: d.proxy.NoProxy}
						return func(o *configv1.Proxy) { o.Spec = configv1.ProxySpec{} }
					})
			}
		},
		addClientCA: func(t *testing.T, c *crew, added []byte) (old []byte) {
			t.Helper()
			config := &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"}}
			lend(t, c, config, func(o *mcfgv1.ControllerConfig) func(*mcfgv1.ControllerConfig) {
				old = o.Spec.KubeAPIServerServingCAData
				o.Spec.KubeAPIServerServingCAData = append(bytes.Clone(old), added...)
				return func(o *mcfgv1.ControllerConfig) { o.Spec.KubeAPIServerServingCAData = old }
			})
			return old
		},
	}
}

// inTheConfig returns the means without OpenShift: fields of the WindowsMachineConfig, and a ConfigMap of kube-system
// for the CAs of kubelets' clients.
func inTheConfig() means {
	pulls := client.ObjectKey{Namespace: contract.OperatorNamespace, Name: "pulls"}
	return means{
		pullSecret: pulls,
		declare: func(t *testing.T, c *crew, d declared) {
			t.Helper()
			if d.signer != nil {
				d.trustBundle += string(d.signer.PEM)
			}
			if d.logins != nil {
				c.put(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: pulls.Namespace, Name: pulls.Name},
					Type: corev1.SecretTypeDockerConfigJson,
					Data: map[string][]byte{corev1.DockerConfigJsonKey: d.logins}})
			}
			c.lendSettings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) {
				d.settings(t, c, spec)
				spec.Proxy, spec.Mirrors.ImageDigestMirrors = d.proxy, d.mirrors
				if d.logins != nil {
					spec.PullSecret = pulls.Name
				}
			})
		},
		addClientCA: func(t *testing.T, c *crew, added []byte) (old []byte) {
			t.Helper()
			const key = "client-ca-file"
			t.Cleanup(func() { must(t, c.look(context.WithoutCancel(t.Context()), c.settings, 8*time.Minute)) })
			config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem,
				Name: "extension-apiserver-authentication"}}
			lend(t, c, config, func(o *corev1.ConfigMap) func(*corev1.ConfigMap) {
				before := o.Data[key]
				old = []byte(before)
				o.Data[key] += string(added)
				return func(o *corev1.ConfigMap) { o.Data[key] = before }
			})
			must(t, c.look(t.Context(), c.settings, 7*time.Minute))
			return old
		},
	}
}

// shippedForKubernetes returns the rights that the operator and daemons have only without OpenShift, as they were
// applied. The tests on OpenShift check the rights that also exist on OpenShift.
func shippedForKubernetes(t *testing.T, s *stage) (all []right) {
	t.Helper()
	const operator = contract.OperatorServiceAccount + "-kubernetes"
	all = append(all, s.rights(t, right{}, operator)...)
	if s.has(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-flannel"}}) {
		all = append(all, s.rights(t, right{daemon: true}, "windows-flannel-token")...)
	}
	if len(all) < 4 || !slices.ContainsFunc(all, func(r right) bool { return r.resource == "servicecidrs" }) {
		t.Fatalf("only %d rights were found: are the roles named otherwise?", len(all))
	}
	return all
}

func (s *stage) has(t *testing.T, object client.Object) bool {
	t.Helper()
	err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	must(t, client.IgnoreNotFound(err))
	return err == nil
}
