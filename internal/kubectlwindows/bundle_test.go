package kubectlwindows_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// planted returns secrets in the forms in which users leave them in objects and logs.
func planted() map[string]string {
	return map[string]string{
		"a Secret's data":                "planted-in-a-secret",
		"a foreign ConfigMap":            "planted-in-a-configmap",
		"an entry that is wrong":         "planted-in-an-entry",
		"a variable of a pod":            "planted-in-a-variable",
		"a variable with a quiet name":   "planted-behind-a-greeting",
		"an init container":              "planted-in-an-init-container",
		"an argument":                    "planted-in-an-argument",
		"an argument after its flag":     "planted-after-a-flag",
		"a foreign pod":                  "planted-in-a-foreign-pod",
		"a proxy's URL":                  "planted-in-a-url",
		"a proxy's URL with a slash":     "planted/with@a/slash",
		"what was applied last":          "planted-when-applied",
		"an annotation":                  "planted-in-an-annotation",
		"an annotation of ours":          "planted-in-a-status",
		"a template's annotation":        "planted-in-a-template",
		"a label":                        "planted-in-a-label",
		"managed fields":                 "planted-in-managed-fields",
		"a message of an event":          "planted-in-an-event",
		"a message of an instance":       "planted-in-a-message",
		"a value that YAML folds":        "planted-in-a-fold",
		"a private key in a log":         "UGxhbnRlZEluQUtleQ",
		"a key whose begin is cut off":   "UGxhbnRlZEhhbGY",
		"base64 of a private key":        base64.StdEncoding.EncodeToString([]byte("-----BEGIN EC PRIVATE KEY-----\nx"))[20:],
		"a token in a log":               "eyJhbGciOiJSUzI1NiJ9.eyJwbGFudGVkIjoxfQ.cGxhbnRlZA",
		"a token of GitHub":              "ghp_plantedplantedplantedplanted",
		"a header in a log":              "planted+in/a+header==",
		"a password in a log":            "planted-in-a-log",
		"a password on a command line":   "planted-on-a-command-line",
		"a password in UTF-16":           "planted-in-UTF-16",
		"JSON in a log":                  "planted-in-json",
		"JSON in JSON in a log":          "planted-in-json-in-json",
		"a user before a host":           "planted-before-a-host",
		"a pull secret in a log":         "planted-in-a-pull-secret",
		"a key in JSON in a log":         "UGxhbnRlZEluSlNPTg",
		"a token with a colon":           "planted:in:a:token",
		"a bootstrap token":              "abcdef.0123456789abcdef",
		"a password in the operator's":   "planted-in-the-operators-log",
		"the caller's own secret":        "planted-as-the-caller",
		"an escape sequence of a host":   "\x1b]0;owned",
		"a cut first line of a long log": "planted-in-a-cut-line",
		"a report of a hostile node":     "planted-in-a-report",
	}
}

// front is a proxy in front of the API server that can simulate failures.
type front struct {
	// logs is a folder with the logs of win-1. The proxy serves them in the same way as kubelet.
	logs string
	// onLog is called before a log is served.
	onLog func(*http.Request)
	// hidden is the prefix of paths for which the proxy returns "not found".
	hidden string
	// before is called before each request.
	before func(*http.Request)
	// refuse reports whether the proxy refuses a request as forbidden.
	refuse func(*http.Request) bool
	// fail reports whether the proxy answers a request as if no API server could be reached.
	fail     func(*http.Request) bool
	requests atomic.Int32
}

// behind returns a terminal whose commands send their requests to the proxy f. The proxy sends them to the API server
// as an administrator.
func (at *terminal) behind(t *testing.T, f *front) *terminal {
	t.Helper()
	target, err := url.Parse(at.lab.Admin().Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(at.lab.Admin())
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Del("Authorization")
	}}
	const prefix = "/api/v1/nodes/win-1/proxy/logs/"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		if f.before != nil {
			f.before(r)
		}
		switch {
		case f.refuse != nil && f.refuse(r):
			http.Error(w, "refused", http.StatusForbidden)
		case f.fail != nil && f.fail(r):
			http.Error(w, "no server is there", http.StatusServiceUnavailable)
		case strings.HasPrefix(r.URL.Path, prefix):
			if f.onLog != nil {
				f.onLog(r)
			}
			http.StripPrefix(prefix, http.FileServer(http.Dir(f.logs))).ServeHTTP(w, r)
		case strings.HasSuffix(r.URL.Path, "/pods/operator/log"):
			_, _ = io.WriteString(w, "secret: "+planted()["a password in the operator's"]+"\nthe operator logs\n")
		case f.hidden != "" && strings.HasPrefix(r.URL.Path, f.hidden):
			http.NotFound(w, r)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return at.with(t, &rest.Config{Host: server.URL, BearerToken: planted()["the caller's own secret"]})
}

// annotated returns metadata that contains secrets. Every object in a cluster may have such metadata.
func annotated(name string) metav1.ObjectMeta {
	secrets := planted()
	return metav1.ObjectMeta{Name: name, Namespace: contract.OperatorNamespace, Annotations: map[string]string{
		corev1.LastAppliedConfigAnnotation:   secrets["what was applied last"],
		"example.com/note":                   secrets["an annotation"],
		"shop.openshift.io/registry-token":   secrets["an annotation"],
		contract.Prefix + "stage-status":     "password: " + secrets["an annotation of ours"],
		contract.RebootRequiredAnnotation:    "kept",
		contract.Prefix + "desired-version":  "kept",
		"volumes.kubernetes.io/kept":         "kept",
		"machine.openshift.io/machine":       "kept",
		"csi.volume.kubernetes.io/nodeid":    `{"kept":"kept"}`,
		"flannel.alpha.coreos.com/public-ip": "kept",
	}, Labels: map[string]string{"example.com/password": secrets["a label"],
		"app.kubernetes.io/name": contract.OperatorServiceAccount}}
}

// plant creates one object of each kind that a bundle contains. Each object contains secrets.
func plant(t *testing.T, at *terminal) (logs string) {
	t.Helper()
	secrets := planted()
	template := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init", Image: "init", Env: []corev1.EnvVar{
			{Name: "INIT", Value: secrets["an init container"]}}}},
		Containers: []corev1.Container{{Name: "operator", Image: "operator",
			Args: []string{"--password=" + secrets["an argument"], "--token", secrets["an argument after its flag"]},
			Env: []corev1.EnvVar{{Name: "REGISTRY_PASSWORD", Value: secrets["a variable of a pod"]},
				{Name: "GREETING", Value: secrets["a variable with a quiet name"]},
				{Name: "HTTPS_PROXY", Value: "http://user:" + secrets["a proxy's URL"] + "@proxy:3128"}}}}}
	foreign := *template.DeepCopy()
	foreign.Containers[0].WorkingDir = "/" + secrets["a foreign pod"]
	templateMeta := annotated("")
	templateMeta.Namespace = ""
	templateMeta.Annotations["example.com/note"] = secrets["a template's annotation"]
	selector := map[string]string{"app.kubernetes.io/name": contract.OperatorServiceAccount}
	listed := get[corev1.ConfigMap](t, at, contract.OperatorNamespace, contract.InstancesConfigMap)
	listed.Data["10.0.0.77"] = "username=Administrator\n" + secrets["an entry that is wrong"]
	listed.BinaryData["10.0.0.78"] = []byte("\xff\xfe" + secrets["an entry that is wrong"])
	listed.Annotations = annotated("").Annotations
	var folded strings.Builder
	for i := range 40 { // so that one of the secrets is where YAML breaks the line
		folded.WriteString(strings.Repeat("x", i) + " password: " + secrets["a value that YAML folds"] + " ")
	}
	line := instance("told", nil, v1alpha1.WindowsInstanceStatus{Phase: v1alpha1.PhaseConnecting, Failures: 1,
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue,
			Reason: string(contract.ReasonKeyRefused), LastTransitionTime: metav1.Now(),
			Message: "password=" + secrets["a message of an instance"]}, {Type: v1alpha1.ConditionReady,
			Status: metav1.ConditionFalse, Reason: string(contract.ReasonKeyRefused),
			LastTransitionTime: metav1.Now(), Message: folded.String()}}})
	line.ObjectMeta = annotated("told")
	owner := client.FieldOwner(secrets["managed fields"])
	config := get[v1alpha1.WindowsMachineConfig](t, at, "", contract.MachineConfigObject)
	config.Annotations = annotated("").Annotations
	config.Spec.Proxy.HTTPSProxy = "http://user:" + secrets["a proxy's URL with a slash"] + "@proxy.example.com:3128"
	for _, object := range []client.Object{listed, config} {
		if err := at.Update(t.Context(), object, owner); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev1.Node{ObjectMeta: annotated("win-dead")}
	node.Labels[corev1.LabelOSStable] = "windows"
	for _, object := range []client.Object{node,
		&corev1.Secret{ObjectMeta: annotated("s"), StringData: map[string]string{"key": secrets["a Secret's data"]}},
		&corev1.ConfigMap{ObjectMeta: annotated("windows-of-another"),
			Data: map[string]string{"x": secrets["a foreign ConfigMap"]}},
		&corev1.ConfigMap{ObjectMeta: annotated(contract.ServicesConfigMapPrefix + "0.1.0-a"),
			Data: map[string]string{"services": "kept"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: contract.OperatorNamespace}},
		&corev1.Pod{ObjectMeta: annotated("operator"), Spec: template, Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{{Name: "operator", RestartCount: 1}}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "foreign", Namespace: contract.OperatorNamespace}, Spec: foreign},
		&appsv1.Deployment{ObjectMeta: annotated("operator"), Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{ObjectMeta: templateMeta, Spec: template}}},
		&corev1.Event{ObjectMeta: annotated("told"), InvolvedObject: corev1.ObjectReference{Kind: "WindowsInstance",
			Name: "told", Namespace: contract.OperatorNamespace}, Message: "token=" + secrets["a message of an event"]},
		&nodev1.RuntimeClass{ObjectMeta: annotated("windows2022"), Handler: "runhcs-wcow-process"},
		line,
	} {
		switch object.(type) {
		case *corev1.Node, *nodev1.RuntimeClass:
			object.SetNamespace("")
		}
		at.create(t, object)
		if err := at.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"annotations":{"example.com/managed":"x"}}}`)), owner); err != nil {
			t.Fatal(err)
		}
	}
	return plantLogs(t)
}

func plantLogs(t *testing.T) string {
	t.Helper()
	secrets := planted()
	kubelet := strings.Repeat("x", 8000) + secrets["a key whose begin is cut off"] + " 2026-11-23\n-----END EC PRIVATE KEY-----\n" +
		"-----BEGIN RSA PRIVATE KEY-----\n" + secrets["a private key in a log"] + "\n-----END RSA PRIVATE KEY-----\n" +
		base64.StdEncoding.EncodeToString([]byte("-----BEGIN EC PRIVATE KEY-----\nx")) + "\n" +
		"the token is " + secrets["a token in a log"] + "\nAuthorization: Bearer " + secrets["a header in a log"] +
		"\npassword=" + secrets["a password in a log"] + " next\n" + `{"token":"` + secrets["JSON in a log"] + `"}` +
		"\nclone with " + secrets["a token of GitHub"] + "\nrun x.exe -password " + secrets["a password on a command line"] +
		"\njoin with " + secrets["a bootstrap token"] + "\n" + secrets["an escape sequence of a host"] + "\a" +
		"\n<script>alert(1)</script> the end of the log\n"
	var wide strings.Builder
	for _, b := range []byte("password=" + secrets["a password in UTF-16"] + "\r\n the end in UTF-16") {
		wide.Write([]byte{b, 0})
	}
	logs := t.TempDir()
	report := `{"node": "kept in the report", "services": [{"name": "password=` + secrets["a report of a hostile node"] + `"}]}`
	if err := errors.Join(os.Mkdir(filepath.Join(logs, "wicd"), 0o700),
		os.WriteFile(filepath.Join(logs, "wicd", "report.json"), []byte(report), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"kubelet": kubelet, "containerd": "\xff\xfe" + wide.String(),
		"kube-proxy": "password=" + strings.Repeat(secrets["a cut first line of a long log"], 400) + "\n" + `{"m":"{\"token\":\"` + secrets["JSON in JSON in a log"] + `\"}"}` +
			"\nproxy admin:" + secrets["a user before a host"] + "@proxy:3128\n" +
			`{"auths":{"quay.io":{"auth":"` + secrets["a pull secret in a log"] + `"}}}` + "\n" +
			`{"k":"-----BEGIN RSA PRIVATE KEY-----\n` + secrets["a key in JSON in a log"] +
			`\n-----END RSA PRIVATE KEY-----\n"}` + "\nAuthorization: Bearer " + secrets["a token with a colon"] +
			"\nthe end of a long one"} {
		if err := errors.Join(os.Mkdir(filepath.Join(logs, name), 0o700),
			os.WriteFile(filepath.Join(logs, name, name+".log"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return logs
}

// unpack returns the files in an archive.
func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	from, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	compressed, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "bundle/")] = string(text)
	}
}

func bundleCommand(t *testing.T, at *terminal) {
	t.Helper()
	before := at.behind(t, &front{logs: plant(t, at)})
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	code, out, errOut := before.run(t.Context(), "", "bundle", "--file", file, "--log-bytes", "4000")
	if code != 0 || !strings.Contains(errOut, "win-1: 3 logs") || !strings.Contains(errOut, "win-dead: 0 logs, then") {
		t.Errorf("%d: %s", code, errOut)
	}
	files := unpack(t, file)
	files["the terminal"] = out + errOut
	for name, text := range files {
		for where, secret := range planted() {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s", name, where)
			}
		}
	}
	for name, wants := range map[string][]string{
		"index.html":                              {"nodes/win-1/kubelet.log", "node win-dead"},
		"status.txt":                              {"FLEET"},
		"hosts/10.0.0.2.txt":                      {"KeyRefused"},
		"objects/windowsinstances.yaml":           {"machine-a", "told", "desired-version: kept"},
		"objects/configmaps.yaml":                 {"10.0.0.77: '[redacted]'", "10.0.0.1: username=", "services: kept"},
		"objects/pods.yaml":                       {"HTTPS_PROXY", "http://[redacted]@proxy:3128", "name: GREETING"},
		"objects/deployments.yaml":                {"kind: DeploymentList", "name: GREETING", "example.com/note: '[redacted]'"},
		"objects/events.yaml":                     {"an event of the host", "told"},
		"objects/nodes.yaml":                      {"win-dead", "volumes.kubernetes.io/kept: kept", "public-ip: kept"},
		"objects/runtimeclasses.yaml":             {"runhcs-wcow-process"},
		"objects/events-of-nodes.yaml":            {"EventList"},
		"objects/windowsmachineconfigs.yaml":      {"http://[redacted]@proxy.example.com:3128"},
		"nodes/win-1/report.json":                 {"kept in the report"},
		"nodes/win-1/kubelet.log":                 {"the end of the log", "^[", " next"},
		"nodes/win-1/containerd.log":              {"the end in UTF-16"},
		"nodes/win-1/kube-proxy.log":              {"the end of a long one"},
		"operator/operator-operator.log":          {"the operator logs"},
		"operator/operator-operator-previous.log": {"the operator logs"},
	} {
		for _, want := range wants {
			if !strings.Contains(files[name], want) {
				t.Errorf("%s lacks %q:\n%.3000s", name, want, files[name])
			}
		}
	}
	at.expect(t, 1, []string{"exists"}, "bundle", "--file", file)
	at.expect(t, 1, []string{"must be from 1"}, "bundle", "--log-bytes", "0")

	small := filepath.Join(t.TempDir(), "small.tar.gz")
	before.expect(t, 0, nil, "bundle", "--file", small, "--max-bytes", "4000", "--nodes", "win-1")
	total := 0
	for name, text := range unpack(t, small) {
		if name != "index.html" {
			total += len(text)
		}
	}
	if total > 4000 {
		t.Errorf("%d bytes", total)
	}
}

// partialBundles checks that bundle writes an archive even if some parts can't be read.
func partialBundles(t *testing.T, at *terminal) {
	t.Helper()
	interrupted, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	for name, c := range map[string]struct {
		at    *terminal
		args  []string
		code  int
		index []string
	}{
		"without time": {at: at, args: []string{"--timeout", "1ns"}, index: []string{"collecting ended early", "KeyRefused"}},
		"without rights": {at: at.as(t, "nobody"), index: []string{
			"hosts could not be read", "<li>nodes: nodes is forbidden", "<li>operator&#39;s logs: "}},
		"without an operator": {at: at.behind(t, &front{hidden: "/apis/" + v1alpha1.GroupVersion().Group}),
			index: []string{"the operator is not installed", "objects/nodes.yaml"}},
		"with Ctrl-C": {at: at.behind(t, &front{logs: t.TempDir(), onLog: func(r *http.Request) {
			interrupt()
			<-r.Context().Done()
		}}), code: 1, index: []string{"collecting ended early", "objects/nodes.yaml", "KeyRefused"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "bundle.tar.gz")
			ctx := t.Context()
			if c.code != 0 {
				ctx = interrupted
			}
			code, _, errOut := c.at.run(ctx, "", append([]string{"bundle", "--file", file}, c.args...)...)
			if code != c.code {
				t.Fatalf("%d %s", code, errOut)
			}
			index := unpack(t, file)["index.html"]
			for _, want := range c.index {
				if !strings.Contains(index, want) {
					t.Errorf("the index lacks %q:\n%s", want, index)
				}
			}
		})
	}
	at.with(t, &rest.Config{Host: "https://127.0.0.1:1"}).expect(t, 1, []string{"refused"}, "bundle", "--file",
		filepath.Join(t.TempDir(), "none"))
}

// hangingNode simulates a kubelet that accepts requests for logs and doesn't answer them. Either it answers none, or it
// answers only the request for the report.
func hangingNode(t *testing.T, at *terminal) {
	t.Helper()
	const limit = "10s" // even a busy API server answers within this time
	logs := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(logs, "wicd"), 0o700),
		os.WriteFile(filepath.Join(logs, "wicd", "report.json"), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	hangs := func(r *http.Request) { <-r.Context().Done() }
	never := at.behind(t, &front{logs: logs, onLog: hangs})
	silent := at.behind(t, &front{logs: logs, onLog: func(r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "report.json") {
			hangs(r)
		}
	}})
	for name, c := range map[string]struct {
		at    *terminal
		code  int
		wants []string
		args  []string
	}{
		"status does not ask it":       {never, 2, []string{"FLEET"}, []string{"status"}},
		"drain-status does not either": {never, 2, []string{"node win-1"}, []string{"drain-status", "win-1"}},
		"why says what else it knows": {never, 0, []string{"host 10.0.0.1, node win-1", "not read: "},
			[]string{"why", "10.0.0.1", "--request-timeout", limit}},
		"logs end": {never, 1, []string{"reading log", "win-1", "imeout"},
			[]string{"logs", "win-1", "--request-timeout", limit}},
		"a bundle lacks its part": {never, 0, []string{"win-1: 0 logs, then reading log /wicd/report.json of node win-1", "win-dead"},
			[]string{"bundle", "--file", filepath.Join(t.TempDir(), "never.tar.gz"), "--request-timeout", limit}},
		"a bundle has what came before": {silent, 0, []string{"win-1: 0 logs, then reading log", "win-dead"},
			[]string{"bundle", "--file", filepath.Join(t.TempDir(), "silent.tar.gz"), "--request-timeout", limit}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := c.at.run(t.Context(), "", c.args...)
			if code != c.code {
				t.Errorf("the exit code is %d", code)
			}
			for _, want := range c.wants {
				if !strings.Contains(out+errOut, want) {
					t.Errorf("the output lacks %q:\n%s%s", want, out, errOut)
				}
			}
		})
	}
}
