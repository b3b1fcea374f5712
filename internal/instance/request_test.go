package instance_test

import (
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/test/hosttest"
)

// The operator submits a host's request with its own identity, and administrators trust that. So it must not submit a
// request whose content the host chose.
func TestA52_TheOperatorSubmitsNoRequestForWhatAHostChose(t *testing.T) {
	t.Parallel()
	user, group := contract.DaemonUserPrefix+"win-a", contract.DaemonGroup
	for name, request := range map[string][]byte{
		"the controller manager":     hosttest.CertificateRequest("system:kube-controller-manager", group),
		"another node's daemon":      hosttest.CertificateRequest(contract.DaemonUserPrefix+"win-b", group),
		"a name that begins so":      hosttest.CertificateRequest(user+"b", group),
		"administrators":             hosttest.CertificateRequest(user, "system:masters"),
		"a server":                   hosttest.CertificateRequest(user, group, "kubernetes.default.svc"),
		"something unreadable":       []byte("request"),
		"something with a preface":   append([]byte("x\n"), hosttest.CertificateRequest(user, group)...),
		"something with an appendix": append(hosttest.CertificateRequest(user, group), "x"...),
		"something large":            append(hosttest.CertificateRequest(user, group), strings.Repeat("\n", 1<<20)...),
		"nothing":                    nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.machine.Answer(contract.VerbBootstrap, contract.BootstrapAnswer{NodeName: "win-a", DaemonCSR: request})
			want(t, w.join(t, newInstance(), &journey.Session{}, ""), "fails", contract.ReasonDaemonCallFailed)
			list := &certificatesv1.CertificateSigningRequestList{}
			if err := w.client.List(t.Context(), list); err != nil || len(list.Items) != 0 {
				t.Errorf("%d requests were submitted (%v)", len(list.Items), err)
			}
		})
	}
}
