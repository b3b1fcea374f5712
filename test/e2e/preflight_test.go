package e2e_test

import (
	"bytes"
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/kubectlwindows"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

// checked is the plugin's output for one host.
type checked struct {
	Fits    bool
	Reason  string
	Message string
}

// preflight runs the plugin's check on one host.
func (s *stage) preflight(t *testing.T, h *fleet.Host) (code int, one checked) {
	t.Helper()
	address, value := h.Entry()
	port := strconv.Itoa(contract.SSHPort)
	user := ""
	for line := range strings.SplitSeq(value, ",") {
		name, setting, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "port":
			port = setting
		case "username":
			user = setting
		}
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	var out, problems bytes.Buffer
	code = kubectlwindows.Run(t.Context(), []string{"kubectl-windows", "preflight", address, "--username", user, "--port",
		port, "--kubeconfig", s.Cluster.Kubeconfig, "-o", "json"},
		genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &problems})
	var all []checked
	if err := json.Unmarshal(out.Bytes(), &all); err != nil || len(all) != 1 {
		t.Fatalf("exit code %d, error %v, output: %s%s", code, err, out.String(), problems.String())
	}
	return code, all[0]
}

func TestA75_AHostIsCheckedWithoutJoining(t *testing.T) {
	t.Parallel()
	o := options(4)
	o.Hosts.Faults = []fleet.Fault{fleet.FaultAuth, fleet.FaultBuild}
	s := own(t, o)
	good, joined := s.Fleet.Hosts[2], s.Fleet.Hosts[3]
	s.join(t, joined)
	for _, c := range []struct {
		host *fleet.Host
		want contract.Reason
	}{
		{s.Fleet.Hosts[0], fleet.FaultAuth.Reason()}, {s.Fleet.Hosts[1], fleet.FaultBuild.Reason()},
		{good, contract.ReasonPreflightOnly}, {joined, contract.ReasonHostListed},
	} {
		fits := c.host == good
		code, one := s.preflight(t, c.host)
		if one.Fits != fits || one.Reason != string(c.want) || code != map[bool]int{true: 0, false: 2}[fits] {
			t.Errorf("%s: exit code %d, result %+v, want %s", c.host.Name, code, one, c.want)
		}
		if c.host == joined {
			continue
		}
		if left := scene.Left(c.host); len(left) > 0 {
			t.Errorf("%s was changed: %v", c.host.Name, left)
		}
	}
	s.onlyRequests(t, joined)
	var nodes corev1.NodeList
	if err := s.Client.List(t.Context(), &nodes, client.MatchingLabels{corev1.LabelOSStable: "windows"}); err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 1 {
		t.Errorf("there are %d Windows nodes, want only the host that joined", len(nodes.Items))
	}
	s.ready(t, joined)
	// A host that was checked can still join under its name.
	s.join(t, good)
	var instances v1alpha1.WindowsInstanceList
	if err := s.Client.List(t.Context(), &instances, client.InNamespace(contract.OperatorNamespace)); err != nil {
		t.Fatal(err)
	}
	for _, i := range instances.Items {
		if i.Spec.PreflightOnly && i.DeletionTimestamp.IsZero() {
			t.Errorf("the WindowsInstance %s was not deleted", i.Name)
		}
	}
}

// onlyRequests checks that all certificate requests belong to the joined host: those of its daemon, and those of its
// kubelet, either with the bootstrap credential or as its node.
func (s *stage) onlyRequests(t *testing.T, joined *fleet.Host) {
	t.Helper()
	var requests certificatesv1.CertificateSigningRequestList
	if err := s.Client.List(t.Context(), &requests); err != nil {
		t.Fatal(err)
	}
	for _, r := range requests.Items {
		if name := commonName(r); !strings.HasSuffix(name, ":"+joined.Name) {
			t.Errorf("there is a certificate request for %s, which did not join", name)
		}
	}
}
