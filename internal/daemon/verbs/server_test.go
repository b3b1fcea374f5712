package verbs_test

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

const pathKubeletCertificate = contract.DirKubeletPKI + `\kubelet-client-current.pem`

// joinWith joins the host again with another bootstrap credential.
func joinWith(t *testing.T, r *rig, kubeconfig string) {
	t.Helper()
	request := bootstrapRequest()
	request.BootstrapKubeconfig = []byte(kubeconfig)
	made := must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, request))
	must(t, call[contract.HandoverAnswer](t, r, contract.VerbHandover, r.handoverRequest(t, made.DaemonCSR)))
	eventually(t, "kubelet", func() bool { return service(t, r, "kubelet").State == winos.ServiceRunning })
}

// proxied starts kube-proxy. The daemon of this host doesn't start kube-proxy, because it lacks data about the Node.
func proxied(t *testing.T, r *rig) {
	t.Helper()
	services := r.Host().Services
	config := winos.ServiceConfig{Name: "kube-proxy", Description: plan.Description("kube-proxy"),
		Command: contract.PathKubeProxy}
	if err := errors.Join(services.Apply(t.Context(), config), services.Start(t.Context(), "kube-proxy")); err != nil {
		t.Fatal(err)
	}
}

// The CA of the API server was rotated, or spec.apiServer changed. Only kubelet writes its kubeconfig, so this
// kubeconfig still contains the data of the first join. kube-proxy reads the same kubeconfig. A join must update it.
func TestKubeletFindsTheAPIServerWhereItIsNowWhenItsHostJoinsAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code int
		kept bool
	}{
		"its certificate counts":                        {http.StatusOK, true},
		"its certificate counts no more with the other": {http.StatusUnauthorized, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.code)
			}))
			defer server.Close()
			ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
			r := newRig(t, sim.Options{})
			join(t, r)
			awaitReconciled(t, r)
			write(t, r, contract.PathKubeProxy, "MZ proxy", winos.AccessInherit)
			proxied(t, r)
			write(t, r, contract.PathFlannelKubeconfig, kubeconfigOf(firstServer, firstCA), winos.AccessAdministrators)
			certificate, kubelets := read(t, r, pathKubeletCertificate), r.kubelets.Load()
			joinWith(t, r, kubeconfigOf(server.URL, ca))
			paths := []string{contract.PathFlannelKubeconfig}
			if c.kept {
				paths = append(paths, contract.PathKubeconfig)
			}
			for _, path := range paths {
				config, err := clientcmd.Load([]byte(read(t, r, path)))
				if err != nil {
					t.Fatal(err)
				}
				if k := config.Clusters["k"]; k == nil || k.Server != server.URL || string(k.CertificateAuthorityData) != ca {
					t.Errorf("%s has %+v", path, k)
				}
				if u := config.AuthInfos["u"]; u == nil || u.ClientCertificate != pathKubeletCertificate {
					t.Errorf("the user in %s is %+v", path, u)
				}
			}
			if kept := read(t, r, pathKubeletCertificate) == certificate; kept != c.kept {
				t.Errorf("kubelet kept its certificate: %t", kept)
			}
			if n := r.kubelets.Load() - kubelets; n != 1 {
				t.Errorf("kubelet was started %d times, want once", n)
			}
			if service(t, r, "kube-proxy").State != winos.ServiceStopped {
				t.Error("kube-proxy was not restarted, so it still uses the old data")
			}
			if !c.kept {
				return
			}
			proxied(t, r)
			kubelets = r.kubelets.Load()
			joinWith(t, r, kubeconfigOf(server.URL, ca))
			if r.kubelets.Load() != kubelets || service(t, r, "kube-proxy").State != winos.ServiceRunning {
				t.Error("services were restarted without a change")
			}
		})
	}
}

// If kubelet is stopped, Windows also stops the services that depend on it. They must run again after the join.
func TestServicesOfOthersThatNeedKubeletRunAgainWhenItsHostHasJoinedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		unapproved bool
		change     func(request *contract.BootstrapRequest)
	}{
		"the API server is elsewhere": {change: func(request *contract.BootstrapRequest) {
			request.BootstrapKubeconfig = []byte(kubeconfigOf("https://127.0.0.1:2", "another CA"))
		}},
		"kubelet has another credential": {unapproved: true, change: func(request *contract.BootstrapRequest) {
			request.BootstrapKubeconfig = []byte("another secret")
		}},
		"kubelet registers again": {change: func(request *contract.BootstrapRequest) { request.Register = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			r.unapproved.Store(c.unapproved)
			join(t, r)
			if !c.unapproved {
				awaitReconciled(t, r)
			}
			eventually(t, "kubelet", func() bool { return service(t, r, "kubelet").State == winos.ServiceRunning })
			const exe = `C:\agent\agent.exe`
			services := r.Host().Services
			write(t, r, exe, "MZ agent", winos.AccessInherit)
			if err := errors.Join(services.Apply(t.Context(), winos.ServiceConfig{Name: "agent", Description: "somebody's",
				Command: exe, Dependencies: []string{"kubelet"}}), services.Start(t.Context(), "agent")); err != nil {
				t.Fatal(err)
			}
			kubelets, request := r.kubelets.Load(), bootstrapRequest()
			c.change(&request)
			must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, request))
			if r.kubelets.Load() == kubelets {
				t.Error("kubelet was not restarted")
			}
			if s := service(t, r, "agent").State; s != winos.ServiceRunning { // no daemon runs yet
				t.Errorf("the agent is %s", s)
			}
		})
	}
}

// kubelet writes its kubeconfig without a flush, so a power cut within seconds leaves zeros.
func TestAKubeletWithAZeroedKubeconfigGetsAnotherWhenItsHostJoinsAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	awaitReconciled(t, r)
	zeros := string(make([]byte, 2000))
	write(t, r, contract.PathKubeconfig, zeros, winos.AccessAdministrators)
	join(t, r)
	awaitReconciled(t, r)
	if read(t, r, contract.PathKubeconfig) == zeros {
		t.Error("kubelet's kubeconfig still has only zeros")
	}
}
