package reconcile_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// tokens simulates how the API server handles token requests.
type tokens struct {
	requests atomic.Int64
	refuses  atomic.Bool
}

// serve answers token requests. The name of a token starts with the UID of the Node that it is bound to. The API
// server's clock is a day ahead of the host's clock.
func (s *tokens) serve(r *rig) {
	r.api.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.requests.Add(1)
		create, ok := a.(clienttesting.CreateAction)
		if s.refuses.Load() || !ok || a.GetSubresource() != "token" || a.GetNamespace() != namespace {
			return true, nil, errors.New("forbidden")
		}
		request := create.GetObject().(*unstructured.Unstructured).DeepCopy()
		field := func(path ...string) string {
			text, _, _ := unstructured.NestedString(request.Object, path...)
			return text
		}
		accounts := []string{contract.CloudNodeServiceAccount, contract.FlannelServiceAccount}
		if !slices.Contains(accounts, request.GetName()) || field("spec", "boundObjectRef", "kind") != "Node" ||
			field("spec", "boundObjectRef", "name") != nodeName {
			return true, nil, fmt.Errorf("a request for %v", request.Object)
		}
		now := time.Now().Add(24 * time.Hour)
		request.SetCreationTimestamp(metav1.NewTime(now))
		request.Object["status"] = map[string]any{
			"token": fmt.Sprintf("%s/%d/%s", field("spec", "boundObjectRef", "uid"), s.requests.Load(),
				request.GetName()),
			"expirationTimestamp": now.Add(time.Hour).UTC().Format(time.RFC3339)}
		return true, request, nil
	})
}

// azure returns a manifest in which kube-proxy plays the role of Azure's node manager.
func azure() contract.Manifest {
	m := manifest()
	for i := range m.Services {
		if m.Services[i].Name == contract.ServiceKubeProxy {
			m.Services[i].Command += " --kubeconfig=CLOUD_NODE"
			m.Services[i].HostVariables = append(m.Services[i].HostVariables,
				contract.HostVariable{Name: "CLOUD_NODE", Fact: contract.FactCloudNodeKubeconfig})
		}
	}
	return m
}

const daemonKubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"c",
"contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],"users":[{"name":"u","user":{}}],
"clusters":[{"name":"k","cluster":{"server":"https://api-int:6443","certificate-authority-data":"Y2E="}}]}`

func (r *rig) token(t *testing.T) string {
	t.Helper()
	content, err := winos.ReadFile(r.Host().Files, contract.PathCloudNodeToken)
	if err != nil {
		return ""
	}
	return string(content)
}

func (r *rig) newUID(t *testing.T, uid types.UID) {
	t.Helper()
	object, err := r.api.Tracker().Get(nodes, "", nodeName)
	if err != nil {
		t.Fatal(err)
	}
	node := object.(*unstructured.Unstructured).DeepCopy()
	node.SetUID(uid)
	if err = r.api.Tracker().Update(nodes, node, ""); err != nil {
		t.Fatal(err)
	}
}

func TestA40_TheTokenOfAzuresNodeManagerIsRenewedAndThatOfItsNode(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var server tokens
		server.serve(r)
		server.refuses.Store(true)
		holds(t, r)
		if n := server.requests.Load(); n != 0 {
			t.Errorf("%d unneeded tokens were requested", n)
		}
		r.write(t, contract.PathDaemonKubeconfig, daemonKubeconfig)
		r.newUID(t, "first")
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, azure()))
		pass(time.Hour)
		r.expectStatus(t, one(), contract.ReasonTokenPending)
		if exists := r.annotations(t)[contract.ApplyStatusAnnotation]; !strings.Contains(exists, "forbidden") {
			t.Errorf("the Node reports %q, without the cause", exists)
		}
		if n := server.requests.Load(); n < 3 || n > 70 {
			t.Errorf("%d refused requests in an hour", n)
		}

		server.refuses.Store(false)
		pass(10 * time.Minute)
		r.expectStatus(t, versionOf(azure()), "")
		if s, err := r.Host().Services.Get(t.Context(), contract.ServiceKubeProxy); err != nil ||
			!strings.HasSuffix(s.Command, "--kubeconfig="+contract.PathCloudNodeKubeconfig) {
			t.Errorf("the service is %+v, %v", s, err)
		}
		content, err := winos.ReadFile(r.Host().Files, contract.PathCloudNodeKubeconfig)
		if err != nil || !strings.Contains(string(content), `C:\k\wicd-certs\cloud-node-token`) ||
			!strings.Contains(string(content), "https://api-int:6443") {
			t.Errorf("the kubeconfig is %s, %v", content, err)
		}
		info, err := r.Host().Files.Stat(contract.PathCloudNodeToken)
		if err != nil || info.Access != winos.AccessAdministrators {
			t.Errorf("the token is for %v, %v", info.Access, err)
		}
		before, requests := r.token(t), server.requests.Load()
		if !strings.HasPrefix(before, "first/") {
			t.Fatalf("the token is %q", before)
		}

		t.Log("the token is renewed after half of its lifetime, and not more often")
		pass(5 * time.Hour)
		if n := server.requests.Load() - requests; n < 9 || n > 11 {
			t.Errorf("%d requests in five hours", n)
		}
		if r.token(t) == before {
			t.Error("the token was not renewed")
		}

		t.Log("a new Node with this name needs another token")
		r.newUID(t, "second")
		pass(time.Minute)
		if !strings.HasPrefix(r.token(t), "second/") {
			t.Errorf("the token is %q", r.token(t))
		}

		t.Log("a failed renewal is reported only when the token expires soon")
		server.refuses.Store(true)
		pass(42 * time.Minute)
		r.expectStatus(t, versionOf(azure()), "")
		pass(5 * time.Minute)
		r.expectStatus(t, versionOf(azure()), contract.ReasonTokenExpiring)
		if exists := r.annotations(t)[contract.ApplyStatusAnnotation]; !strings.Contains(exists, "forbidden") {
			t.Errorf("the Node reports %q, without the cause", exists)
		}
		t.Log("another revision holds in spite of the failed renewal")
		other := azure()
		other.Services[0].Command += " --v=5"
		r.hns.hang()
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, other))
		for range 600 {
			if strings.HasPrefix(r.annotations(t)[contract.ApplyStatusAnnotation], "NetworkPending") {
				break
			}
			pass(time.Second)
		}
		r.expectStatus(t, versionOf(azure()), contract.ReasonNetworkPending)
		r.hns.goOn()
		pass(20 * time.Second)
		r.expectStatus(t, versionOf(other), contract.ReasonTokenExpiring)
		r.annotate(t, contract.DesiredRevisionAnnotation, versionOf(azure()))
		server.refuses.Store(false)
		pass(2 * time.Minute)
		r.expectStatus(t, versionOf(azure()), "")

		t.Log("a failed write of the file does not count as an API server that does not answer")
		r.SetPathFault(contract.PathCloudNodeToken, fmt.Errorf("%w: %w", winos.ErrDenied, syscall.ENOSPC))
		pass(time.Hour)
		r.expectStatus(t, versionOf(azure()), contract.ReasonTokenExpiring)
		r.SetPathFault(contract.PathCloudNodeToken, nil)
		pass(2 * time.Minute)
		r.expectStatus(t, versionOf(azure()), "")

		t.Log("a deleted file is written again")
		if err := r.Host().Files.Remove(contract.PathCloudNodeToken); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Minute)
		if r.token(t) == "" {
			t.Error("the token is missing")
		}

		t.Log("a restarted daemon requests a token, because it does not know the age of the last one")
		requests = server.requests.Load()
		r.stopDaemon()
		r.start(t, r.api)
		pass(time.Minute)
		if n := server.requests.Load() - requests; n != 1 {
			t.Errorf("%d requests after the start", n)
		}
		r.expectStatus(t, versionOf(azure()), "")
	})
}

func TestA60_FlanneldGetsATokenOfItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var server tokens
		server.serve(r)
		holds(t, r)
		r.write(t, contract.PathDaemonKubeconfig, daemonKubeconfig)
		r.newUID(t, "first")
		m := manifest()
		for i := range m.Services {
			if m.Services[i].Name == contract.ServiceKubeProxy {
				m.Services[i].Command += " --kubeconfig=FLANNEL"
				m.Services[i].HostVariables = append(m.Services[i].HostVariables,
					contract.HostVariable{Name: "FLANNEL", Fact: contract.FactFlannelKubeconfig})
			}
		}
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, m))
		pass(10 * time.Minute)
		r.expectStatus(t, versionOf(m), "")
		content, err := winos.ReadFile(r.Host().Files, contract.PathFlannelToken)
		if err != nil || !strings.HasSuffix(string(content), "/"+contract.FlannelServiceAccount) {
			t.Errorf("the token is %q, %v", content, err)
		}
		content, err = winos.ReadFile(r.Host().Files, contract.PathFlannelKubeconfig)
		if err != nil || !strings.Contains(string(content), `flanneld-token`) {
			t.Errorf("the kubeconfig is %s, %v", content, err)
		}
		if r.token(t) != "" {
			t.Error("an unneeded token exists")
		}
	})
}
