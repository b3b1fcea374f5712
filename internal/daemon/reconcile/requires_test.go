package reconcile_test

import (
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// kubelet may get its serving certificate late, or never. Only the exporter may wait for this certificate: neither the
// revision nor another service.
func TestA53_TheExporterStartsOnceKubeletHasACertificateAndNothingElseWaitsForIt(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		kubelet := r.pid(t, "kubelet")
		// The exporter needs its own program, because the daemon finds the processes of a service by the path of their
		// program.
		const exe = `C:\k\exporter.exe`
		r.write(t, exe, "MZ exporter")
		m := manifest()
		m.Services = append(m.Services, contract.Service{Name: contract.ServiceExporter, Priority: 2,
			Command: exe, RequiresFile: contract.PathKubeletServingPair})
		version := r.want(t, m, contract.Confidential{})
		pass(3 * time.Minute)
		r.expectStatus(t, version, "")
		if state := r.state(t, contract.ServiceExporter); state != "absent" {
			t.Errorf("without the file, the exporter is %s", state)
		}
		r.write(t, contract.PathKubeletServingPair, "certificate and key")
		pass(12 * time.Second)
		if state := r.state(t, contract.ServiceExporter); state != winos.ServiceRunning {
			t.Errorf("with the file, the exporter is %s", state)
		}
		exporter := r.pid(t, contract.ServiceExporter)
		if err := r.Host().Files.Remove(contract.PathKubeletServingPair); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Minute)
		r.expectStatus(t, version, "")
		if r.pid(t, contract.ServiceExporter) != exporter || r.pid(t, "kubelet") != kubelet {
			t.Error("a service was restarted because the file was deleted")
		}
	})
}
