package kubectlwindows

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// An attacker on a node can answer requests for kubelet's logs with a redirect. The API server passes the redirect on.
// The plugin must not send the user's credentials to the new address.
func TestA53_ANodeThatRedirectsIsSentNoCredential(t *testing.T) {
	t.Parallel()
	var asked []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Authorization"))
		_, _ = w.Write([]byte("{}"))
	}))
	defer elsewhere.Close()
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/proxy/logs/kubelet"): // kubelet's redirect for a directory
			w.Header().Set("Location", "kubelet/")
			w.WriteHeader(http.StatusMovedPermanently)
			return
		case strings.HasSuffix(r.URL.Path, "/proxy/logs/kubelet/"):
			_, _ = w.Write([]byte("kubelet.log"))
			return
		case strings.Contains(r.URL.Path, "/proxy/logs/"):
			http.Redirect(w, r, elsewhere.URL+"/x", http.StatusFound)
			return
		}
		http.NotFound(w, r)
	}))
	defer api.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: api.URL, CertificateAuthorityData: pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})}
	config.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["x"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "a"}, "x"
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err = os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = &file
	r, err := (&plugin{flags: flags, now: time.Now, operator: "x"}).connect()
	if err != nil {
		t.Fatal(err)
	}
	_, failed := r.reportText(t.Context(), "win-1")
	if failed == nil || !strings.Contains(failed.Error(), "redirect") {
		t.Errorf("the report returned: %v", failed)
	}
	if _, failed = r.end(t.Context(), "win-1", logFile("kubelet"), 1000); failed == nil {
		t.Error("the log was read")
	}
	if files, failed := r.end(t.Context(), "win-1", "kubelet", 1000); failed != nil || string(files.text) != "kubelet.log" {
		t.Errorf("a directory: %q, %v", files.text, failed)
	}
	if len(asked) > 0 {
		t.Errorf("the redirect's target was asked: %q", asked)
	}
}
