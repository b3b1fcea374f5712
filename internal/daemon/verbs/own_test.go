package verbs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// withDaemon adds the daemon's own program to the manifest.
func withDaemon(exe string) contract.Manifest {
	m := manifest()
	m.Files = append(m.Files, contract.File{Path: contract.PathDaemon, Digest: digestOf(exe), Size: int64(len(exe))})
	return m
}

func TestTheDaemonsProgramTravelsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	request := preflightRequest(r)
	request.Blobs = append(request.Blobs, blobOf(firstDaemon))
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, request))
	if len(found.Missing) != len(wanted()) || slices.Contains(found.Missing, blobOf(firstDaemon)) {
		t.Errorf("the missing blobs are %v", found.Missing)
	}
	if there, _ := winos.Exists(r.Host().Files, contract.DirStore); there {
		t.Error("preflight has changed the machine")
	}
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, send(t, r.Host().Files, r.Home(), found.Missing)))
	bootstrap := bootstrapRequest()
	bootstrap.Manifest = withDaemon(firstDaemon)
	bootstrap.Revision = versionOf(bootstrap.Manifest)
	made := must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, bootstrap))
	must(t, call[contract.HandoverAnswer](t, r, contract.VerbHandover, r.handoverRequest(t, made.DaemonCSR)))
	if service(t, r, contract.ServiceDaemon).State != winos.ServiceRunning {
		t.Fatal("the daemon does not run")
	}
	for _, path := range []string{contract.PathDaemon, contract.DirStore + `\` + digestOf(firstDaemon)} {
		content, err := winos.ReadFile(r.Host().Files, path)
		if err != nil || string(content) != firstDaemon {
			t.Errorf("%s holds %q, %v", path, content, err)
		}
	}
	pid := service(t, r, contract.ServiceDaemon).PID
	found = must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, request))
	if len(found.Missing) > 0 {
		t.Errorf("still missing: %v", found.Missing)
	}
	if now := service(t, r, contract.ServiceDaemon).PID; now != pid {
		t.Error("the daemon was restarted, although its program is already the manifest's")
	}
}

func TestAProgramThatIsNotTheUploadedOneIsSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	request := preflightRequest(r)
	request.Blobs = append(request.Blobs, blobOf("MZ wicd of another release"))
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, request))
	if !slices.Contains(found.Missing, blobOf("MZ wicd of another release")) {
		t.Errorf("the missing blobs are %v", found.Missing)
	}
}

func TestAFileOfTheHostIsTakenIntoTheStoreOnlyWhenItIsWanted(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	bootstrap := bootstrapRequest() // the manifest has no daemon program
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, preflightRequest(r)))
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, send(t, r.Host().Files, r.Home(), found.Missing)))
	must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, bootstrap))
	if there, _ := winos.Exists(r.Host().Files, contract.DirStore+`\`+r.digest); there {
		t.Error("the daemon's program is in the store")
	}
	entries, err := r.Host().Files.List(contract.DirStore)
	if err != nil || slices.ContainsFunc(entries,
		func(e winos.FileInfo) bool { return strings.HasSuffix(e.Name, ".tmp") }) {
		t.Errorf("the store has %v, %v", entries, err)
	}
}
