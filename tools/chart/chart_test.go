package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

// helm is the path of Helm's own command. made is the path of the chart's directory.
var helm, made string

func TestMain(m *testing.M) {
	code, err := prepare(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func prepare(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "chart")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system clears files that can't be removed
	helm = filepath.Join(dir, "helm")
	if output, err := exec.CommandContext(context.Background(), "go", "build", "-o", helm,
		"helm.sh/helm/v4/cmd/helm").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("building helm: %w: %s", err, output)
	}
	if _, err = build(root, "0.1.0", "", dir); err != nil {
		return 1, err
	}
	made = filepath.Join(dir, "wmco")
	return m.Run(), nil
}

// run runs a program and returns its standard output. If the program fails, the error contains standard error.
func run(t *testing.T, environment []string, program string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Env = append(append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(),
		"HELM_DATA_HOME="+t.TempDir()), environment...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, errs.String())
	}
	return out.String(), nil
}

// render returns the objects that the chart renders, by kind, namespace and name. It omits hooks.
func render(t *testing.T, args ...string) map[string]map[string]any {
	t.Helper()
	text, err := run(t, nil, helm, append([]string{"template", "wmco", made, "--no-hooks"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, strings.Split("\n"+text, "\n---\n"))
}

func parse(t *testing.T, documents []string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, document := range documents {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		if len(object) > 0 {
			all[id(object)] = object
		}
	}
	return all
}

// withComponent returns the objects that kustomize renders from a directory of config/ with the component payload and
// an image for it.
func withComponent(t *testing.T, directory, name, digest string) map[string]map[string]any {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "config"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	relative, err := filepath.Rel(dir, path)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%[1]s/%[2]s]\ncomponents: [%[1]s/payload]\n"+
		"images: [{name: quay.io/windows-nodes/wmco-payload, newName: %[3]s, digest: %[4]q}]\n", relative, directory, name, digest)
	if err = os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kustomized(t, dir)
}

// The user sets an image for the payload. An init container must copy the payload from this image. The old pod of the
// operator must run until kubelet has pulled the image.
func TestA61_AnInitContainerBringsThePayloadOfAnotherImage(t *testing.T) {
	t.Parallel()
	const image = "mirror.example:5000/w/wmco-payload"
	digest := "sha256:" + strings.Repeat("a", 64)
	for cluster, directory := range map[string]string{"openshift": "default", "kubernetes": "kubernetes"} {
		want := withComponent(t, directory, image, digest)
		got := render(t, "--set", "cluster="+cluster+",payload.image="+image+"@"+digest)
		compare(t, got, want)
		deployment := got["Deployment "+namespace+"/"+operator]
		at := func(path ...any) any { return get(deployment, append([]any{"spec", "template", "spec"}, path...)) }
		if at("initContainers", 0, "image") != image+"@"+digest {
			t.Errorf("the init container has the image %v", at("initContainers", 0, "image"))
		}
		if flag := fmt.Sprintf("--payload-dir=%v", at("containers", 0, "volumeMounts", 0, "mountPath")); at("containers", 0, "args", 0) != flag {
			t.Errorf("the operator has the flag %v, want %s, where the payload is copied to", at("containers", 0,
				"args", 0), flag)
		}
		if at("initContainers", 0, "volumeMounts", 0, "mountPath") != at("initContainers", 0, "args", 0) {
			t.Error("the init container copies the payload to a directory without a volume")
		}
		if get(deployment, []any{"spec", "strategy", "rollingUpdate", "maxUnavailable"}) != float64(0) {
			t.Error("the old pod of the operator may end before the image of the new pod is pulled")
		}
	}
}

// wanted returns the objects that kustomize renders from a directory of config/.
func wanted(t *testing.T, directory string) map[string]map[string]any {
	t.Helper()
	return kustomized(t, filepath.Join(root, "config", directory))
}

// kustomized returns the objects that kustomize renders from a directory.
func kustomized(t *testing.T, directory string) map[string]map[string]any {
	t.Helper()
	objects, err := kustomize(directory)
	if err != nil {
		t.Fatal(err)
	}
	var documents []string
	for _, object := range objects {
		data, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(data))
	}
	return parse(t, documents)
}

// compare compares the objects of the chart with the objects of kustomize. Exactly the objects that Helm must keep must
// have the keep annotation.
func compare(t *testing.T, got, want map[string]map[string]any) {
	t.Helper()
	if a, b := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(a, b) {
		t.Errorf("the chart renders\n%s\nbut kustomize renders\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	for name, object := range want {
		rendered := got[name]
		if kept := object["kind"] == "Namespace" || object["kind"] == "CustomResourceDefinition"; kept {
			annotations, _ := get(rendered, []any{"metadata", "annotations"}).(map[string]any)
			if annotations[keep] != "keep" {
				t.Errorf("%s would be removed with the release", name)
			}
			if delete(annotations, keep); len(annotations) == 0 {
				delete(rendered["metadata"].(map[string]any), "annotations")
			}
		}
		if !reflect.DeepEqual(rendered, object) {
			a, _ := yaml.Marshal(rendered) // both came from YAML, so Marshal can't fail
			b, _ := yaml.Marshal(object)
			t.Errorf("%s: the chart renders\n%s\nbut kustomize renders\n%s", name, a, b)
		}
	}
}

func TestA65_TheChartRendersWhatKustomizeMakes(t *testing.T) {
	t.Parallel()
	compare(t, render(t), wanted(t, "default"))
}

func TestA65_OnOtherClustersTheChartRendersWhatKustomizeMakesForThem(t *testing.T) {
	t.Parallel()
	compare(t, render(t, "--set", "cluster=kubernetes"), wanted(t, "kubernetes"))
	compare(t, render(t, "--set", "cluster=openshift"), wanted(t, "default"))
	compare(t, render(t, "--api-versions", "config.openshift.io/v1"), wanted(t, "default"))
}

// Only OpenShift's cloud controller relies on a program on Azure's nodes to initialise them. On a plain cluster, the
// chart must not grant this program's rights.
func TestA60_NobodyHasTheRightsOfAzuresNodeManagerWithoutOpenShift(t *testing.T) {
	t.Parallel()
	for name := range wanted(t, "kubernetes") {
		if strings.Contains(name, "cloud-node") && !strings.HasPrefix(name, "ValidatingAdmissionPolicy") {
			t.Errorf("on a plain cluster, the chart renders %s", name)
		}
	}
}

func TestA65_MonitoringComesWhereThePrometheusOperatorIs(t *testing.T) {
	t.Parallel()
	want := wanted(t, "default")
	maps.Copy(want, wanted(t, "monitoring"))
	compare(t, render(t, "--api-versions", "monitoring.coreos.com/v1"), want)
	compare(t, render(t, "--set", "monitoring.enabled=true"), want)
	compare(t, render(t, "--api-versions", "monitoring.coreos.com/v1", "--set", "monitoring.enabled=false"),
		wanted(t, "default"))
}

// A plain cluster has no standard Prometheus. The user must name the Prometheus that reads the metrics. Otherwise, the
// chart must not install monitoring.
func TestA65_MonitoringWithoutOpenShiftIsForThePrometheusThatIsNamed(t *testing.T) {
	t.Parallel()
	plain := []string{"--set", "cluster=kubernetes", "--api-versions", "monitoring.coreos.com/v1"}
	with := func(set string) []string { return append(slices.Clone(plain), "--set", set) }
	compare(t, render(t, plain...), wanted(t, "kubernetes"))
	for set, says := range map[string][]string{
		"monitoring.namespace=monitoring": {"monitoring", "prometheus-k8s", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"},
		"monitoring.namespace=metrics,monitoring.serviceAccount=reader,monitoring.caFile=/ca.pem": {"metrics", "reader", "/ca.pem"},
	} {
		want := wanted(t, "kubernetes")
		maps.Copy(want, read(t, wanted(t, "monitoring"), says[0], says[1], says[2]))
		compare(t, render(t, with(set)...), want)
		compare(t, render(t, "--set", "cluster=kubernetes,monitoring.enabled=true,"+set), want)
	}
	_, err := run(t, nil, helm, append([]string{"template", made}, with("monitoring.enabled=true")...)...)
	if err == nil || !strings.Contains(err.Error(), "set monitoring.namespace") {
		t.Errorf("the user named no Prometheus, but the error is %v", err)
	}
	want := wanted(t, "default")
	maps.Copy(want, read(t, wanted(t, "monitoring"), "openshift-monitoring", "another", openShiftsCA))
	compare(t, render(t, "--set", "cluster=openshift,monitoring.enabled=true,monitoring.serviceAccount=another"), want)
}

const openShiftsCA = "/etc/prometheus/configmaps/kubelet-serving-ca-bundle/ca-bundle.crt"

// read returns the monitoring objects for a Prometheus that isn't OpenShift's Prometheus.
func read(t *testing.T, objects map[string]map[string]any, namespace, account, ca string) map[string]map[string]any {
	t.Helper()
	other := strings.NewReplacer("openshift-monitoring", namespace, "kind: ServiceAccount\n  name: prometheus-k8s",
		"kind: ServiceAccount\n  name: "+account, openShiftsCA, ca)
	var documents []string
	for _, object := range objects {
		data, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, other.Replace(string(data)))
	}
	return parse(t, documents)
}

func TestA73_TheChartCompletesPodsWhereTheAPIServerCan(t *testing.T) {
	t.Parallel()
	const kind = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
	want := wanted(t, "default")
	maps.Copy(want, wanted(t, "workload"))
	compare(t, render(t, "--api-versions", kind), want)
	compare(t, render(t, "--set", "workloadGuard.enabled=true"), want)
	compare(t, render(t, "--api-versions", kind, "--set", "workloadGuard.enabled=false"), wanted(t, "default"))
}

func TestA65_TheRightsInNamespacesThatNotEveryClusterHasAreValues(t *testing.T) {
	t.Parallel()
	for value, directory := range map[string]string{"clusterAPI": "cluster-api", "machineAPI": "machine-api",
		"flannel": "kubernetes/flannel"} {
		want := wanted(t, "default")
		maps.Copy(want, wanted(t, directory))
		compare(t, render(t, "--set", value+".enabled=true"), want)
	}
}

func TestA65_EachValueIsWhereItBelongs(t *testing.T) {
	t.Parallel()
	pod := []any{"spec", "template", "spec"}
	container := at(pod, "containers", 0)
	digest := "sha256:" + strings.Repeat("a", 64)
	deployment := "Deployment " + namespace + "/" + operator
	for key, c := range map[string]struct {
		set   []string
		field []any
		want  any
	}{
		"image.repository":  {[]string{"image.repository=mirror:5000/w/wmco"}, at(container, "image"), "mirror:5000/w/wmco:v0.1.0"},
		"image.tag":         {[]string{"image.tag=v9"}, at(container, "image"), "quay.io/windows-nodes/wmco:v9"},
		"image.digest":      {[]string{"image.tag=v9,image.digest=" + digest}, at(container, "image"), "quay.io/windows-nodes/wmco@" + digest},
		"image.pullPolicy":  {[]string{"image.pullPolicy=Always"}, at(container, "imagePullPolicy"), "Always"},
		"imagePullSecrets":  {[]string{"imagePullSecrets[0].name=pull"}, at(pod, "imagePullSecrets", 0, "name"), "pull"},
		"replicas":          {[]string{"replicas=2"}, []any{"spec", "replicas"}, float64(2)},
		"resources":         {[]string{"resources.limits.memory=2Gi"}, at(container, "resources", "limits", "memory"), "2Gi"},
		"nodeSelector":      {[]string{"nodeSelector.infra=yes"}, at(pod, "nodeSelector", "infra"), "yes"},
		"tolerations":       {[]string{"tolerations[0].key=infra"}, at(pod, "tolerations", 0, "key"), "infra"},
		"priorityClassName": {[]string{"priorityClassName=low"}, at(pod, "priorityClassName"), "low"},
		"extraArgs":         {[]string{"extraArgs={--debugLogging}"}, at(container, "args", 3), "--debugLogging"},
		"extraEnv": {[]string{"extraEnv[0].name=SERVICES_LOG_FILE_SIZE,extraEnv[0].value=10M"},
			at(container, "env", 4, "value"), "10M"},
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			all := render(t, "--set", c.set[0])
			if got := get(all[deployment], c.field); !reflect.DeepEqual(got, c.want) {
				t.Errorf("with %s, the objects contain %v, want %v", c.set, got, c.want)
			}
		})
	}
	if _, ok := render(t, "--set", "namespace.create=false")["Namespace <nil>/"+namespace]; ok {
		t.Error("the chart renders the namespace although the user disabled it")
	}
	const class = "RuntimeClass <nil>/windows2022"
	if render(t)[class] == nil || render(t, "--set", "runtimeClasses.create=false")[class] != nil {
		t.Error("runtimeClasses.create doesn't decide whether the chart has RuntimeClasses")
	}
	for _, check := range []string{"true", "false"} {
		text, err := run(t, nil, helm, "template", made, "--set", "uninstallCheck="+check)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(strings.Contains(text, "helm.sh/hook: pre-delete")) != check {
			t.Errorf("uninstallCheck=%s has the opposite effect on the hook", check)
		}
	}
}

// The chart of a release must name the image by its digest. A tag can be moved to another image, but a digest can't,
// and a mirror has the same digests.
func TestA65_TheChartOfAReleaseNamesTheImageByItsDigest(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("a", 64)
	archive, err := build(root, "0.2.0", "registry.example:5000/w/wmco@"+digest, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]string{
		"image.digest=sha256:" + strings.Repeat("b", 64): "registry.example:5000/w/wmco@sha256:" + strings.Repeat("b", 64),
		"image.repository=mirror/wmco":                   "mirror/wmco@" + digest,
		"image.digest=":                                  "registry.example:5000/w/wmco:v0.2.0",
		"replicas=1":                                     "registry.example:5000/w/wmco@" + digest,
	} {
		text, err := run(t, nil, helm, "template", "wmco", archive, "--set", set)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, "image: "+strconv.Quote(want)+"\n") && !strings.Contains(text, "image: "+want+"\n") {
			t.Errorf("with %s, the chart does not install %s", set, want)
		}
	}
}

func TestA65_NonsenseIsRefusedByName(t *testing.T) {
	t.Parallel()
	for set, says := range map[string]string{
		"image.repository=":             "image/repository",
		"image.repository=a b":          "image/repository",
		"image.tag=v 1":                 "image/tag",
		"image.digest=sha256:abc":       "image/digest",
		"image.pullPolicy=Sometimes":    "image/pullPolicy",
		"payload.image=wmco-payload:v1": "payload/image",
		"imagePullSecrets={pull}":       "imagePullSecrets",
		"replicas=0":                    "replicas",
		"replicas=many":                 "replicas",
		"resources.memory=1Gi":          "resources",
		"tolerations=all":               "tolerations",
		"extraArgs={debugLogging}":      "extraArgs",
		"extraEnv[0].value=x":           "extraEnv",
		"monitoring.enabled=perhaps":    "monitoring/enabled",
		"monitoring.namespace=a/b":      "monitoring/namespace",
		"monitoring.serviceAccount=":    "monitoring/serviceAccount",
		"monitoring.caFile=ca.crt":      "monitoring/caFile",
		"clusterAPI.enabled=perhaps":    "clusterAPI/enabled",
		"flannel.enabled=perhaps":       "flannel/enabled",
		"cluster=okd":                   "cluster",
		"namespace.create=ns":           "namespace/create",
		"runtimeClasses.create=some":    "runtimeClasses/create",
		"namespace.name=another":        "namespace",
		"uninstallCheck=never":          "uninstallCheck",
		"replicaCount=2":                "replicaCount",
		"priorityClassName[0]=highest":  "priorityClassName",
		"nodeSelector.infra=7":          "nodeSelector",
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			_, err := run(t, nil, helm, "template", made, "--set", set)
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("the error does not contain %s: %v", says, err)
			}
		})
	}
}

func TestA65_TheSameSourceMakesTheSameArchive(t *testing.T) {
	t.Parallel()
	var archives [2][]byte
	for i := range archives {
		path, err := build(root, "0.1.0", "", t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if archives[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two builds of the chart differ")
	}
	if _, err := run(t, nil, helm, "lint", "--strict", made); err != nil {
		t.Error(err)
	}
}

// clusterctl installs a bootstrap provider from a single file, so this file must contain all its objects.
func TestA87_TheManifestOfTheBootstrapProviderIsComplete(t *testing.T) {
	t.Parallel()
	const image = "registry.example/wmco@sha256:0123"
	out := t.TempDir()
	if err := components(root, image, out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "bootstrap-components.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"image: " + image + "\n", "kind: Namespace\n", "kind: Deployment\n",
		"name: windowsconfigs.bootstrap.windowsmachineconfig.openshift.io\n",
		"name: windowsconfigtemplates.bootstrap.windowsmachineconfig.openshift.io\n",
		"cluster.x-k8s.io/v1beta2: v1alpha1\n"} {
		if strings.Count(string(text), want) == 0 {
			t.Errorf("the manifest lacks %q", want)
		}
	}
}
