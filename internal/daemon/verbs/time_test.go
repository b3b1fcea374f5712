package verbs_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

const day = 24 * time.Hour

// restart restarts the daemon's service, as a boot does.
func restart(t *testing.T, r *rig, name string) {
	t.Helper()
	stop(t, r, name)
	if err := r.Host().Services.Start(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, r *rig, path string) string {
	t.Helper()
	content, err := winos.ReadFile(r.Host().Files, path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// journal returns everything that the daemon logged.
func journal(t *testing.T, r *rig) string {
	t.Helper()
	const dir = contract.DirLog + `\wicd`
	entries, err := r.Host().Files.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range entries {
		if content, err := winos.ReadFile(r.Host().Files, dir+`\`+e.Name); err == nil {
			all.Write(content)
		}
	}
	return all.String()
}

// awaitReconciled waits until the daemon has finished a pass. The pass deletes kubelet's bootstrap credential, which
// is no longer needed.
func awaitReconciled(t *testing.T, r *rig) {
	t.Helper()
	eventually(t, "deleting kubelet's bootstrap credential", func() bool {
		there, err := winos.Exists(r.Host().Files, contract.PathBootstrapKubeconfig)
		return err == nil && !there
	})
}

func expires(t *testing.T, text string) time.Time {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatal("the text has no certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf.NotAfter
}

func TestTheDaemonsLogHasTheNameThatCollectorsFetch(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	eventually(t, "a log", func() bool {
		content, err := winos.ReadFile(r.Host().Files, `C:\var\log\wicd\windows-instance-config-daemon.exe.INFO`)
		return err == nil && strings.Contains(string(content), "started")
	})
}

func TestADaemonWhoseLogCanNotBeWrittenHoldsItsHostAndSaysSoLater(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil, mend func(t *testing.T, r *rig)
		// want is a text that the log must contain afterwards.
		want string
	}{
		"its directory was removed": {func(t *testing.T, r *rig) {
			t.Helper()
			if err := r.Host().Files.RemoveAll(contract.DirDaemonLog); err != nil {
				t.Fatal(err)
			}
		}, func(t *testing.T, r *rig) {
			t.Helper()
			info, err := r.Host().Files.Stat(contract.DirDaemonLog)
			if err != nil || info.Access != state.Access(contract.DirDaemonLog) {
				t.Errorf("the directory: %+v, %v", info, err)
			}
		}, "started"},
		"it can't be opened": {
			func(_ *testing.T, r *rig) { r.SetPathFault(contract.PathDaemonLog, winos.ErrDenied) },
			func(_ *testing.T, r *rig) { r.SetPathFault(contract.PathDaemonLog, nil) },
			"lines missing here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			join(t, r)
			awaitReconciled(t, r)
			stop(t, r, contract.ServiceDaemon)
			c.spoil(t, r)
			if err := r.Host().Services.Start(t.Context(), contract.ServiceDaemon); err != nil {
				t.Fatal(err)
			}
			// This file is not a program. Only the daemon opens it, to compare its content.
			const file = contract.DirTemp + `\readme.txt`
			for _, mend := range []func(*testing.T, *rig){func(*testing.T, *rig) {}, c.mend} {
				mend(t, r)
				write(t, r, file, "damaged", winos.AccessAdministrators)
				eventually(t, "holding the host", func() bool { return read(t, r, file) == "ours" })
			}
			eventually(t, "a log with "+c.want, func() bool {
				content, err := winos.ReadFile(r.Host().Files, contract.PathDaemonLog)
				return err == nil && strings.Contains(string(content), c.want)
			})
		})
	}
}

// The daemon crashed just before a bootstrap. A second later, the service manager starts it again, even if the
// bootstrap has stopped it since. The daemon must then use the result of the bootstrap.
func TestA11_ADaemonThatComesUpDuringABootstrapGoesByWhatThatLeaves(t *testing.T) {
	t.Parallel()
	const file = contract.DirTemp + `\readme.txt`
	r := newRig(t, sim.Options{})
	join(t, r)
	awaitReconciled(t, r)
	request := bootstrapRequest()
	i := slices.IndexFunc(request.Manifest.Files, func(f contract.File) bool { return f.Path == file })
	request.Manifest.Files[i].Content = "new"
	request.Revision = versionOf(request.Manifest)
	stopped, goOn := make(chan struct{}), make(chan struct{})
	r.life.Store(&mortal{stopped: func(ctx context.Context) {
		close(stopped)
		select {
		case <-goOn:
		case <-ctx.Done():
		}
	}})
	ended := make(chan bool, 1)
	go func() { ended <- attempt(t, r, contract.VerbBootstrap, request) }()
	await(t, "the bootstrap's stop of the daemon", stopped)
	before := strings.Count(journal(t, r), "node=")
	if err := r.Host().Services.Start(t.Context(), contract.ServiceDaemon); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon to wait or to begin", func() bool {
		all := journal(t, r)
		return strings.Contains(all, "waits for another call") || strings.Count(all, "node=") > before
	})
	close(goOn)
	if !<-ended {
		t.Fatal("the bootstrap failed")
	}
	write(t, r, file, "damaged", winos.AccessAdministrators)
	eventually(t, "holding the host", func() bool { return read(t, r, file) != "damaged" })
	if got := read(t, r, file); got != "new" {
		t.Errorf("the daemon restored the old content: %q", got)
	}
	if got := read(t, r, contract.PathState); !strings.Contains(got, request.Revision) {
		t.Error("the daemon overwrote the bootstrap's state file")
	}
}

func TestAHostThatWasOffForAWeekNeedsNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	before := read(t, r, contract.PathDaemonCertificate)
	stop(t, r, contract.ServiceDaemon)
	r.SetClockOffset(7 * day)
	if err := r.Host().Services.Start(t.Context(), contract.ServiceDaemon); err != nil {
		t.Fatal(err)
	}
	stop(t, r, "containerd")
	eventually(t, "kubelet to run", func() bool { return service(t, r, "kubelet").State == winos.ServiceRunning })
	if strings.Contains(journal(t, r), "expired") || read(t, r, contract.PathDaemonCertificate) != before {
		t.Error("the certificate is not valid for a week")
	}
}

func TestAnExpiredIdentityIsSaidAndReplacedByTheWayIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	awaitReconciled(t, r)
	old, kubelets := read(t, r, contract.PathDaemonCertificate), r.kubelets.Load()
	r.SetClockOffset(15 * day)
	restart(t, r, contract.ServiceDaemon)
	eventually(t, "saying so", func() bool {
		return strings.Contains(journal(t, r),
			"the certificate has expired")
	})
	// The daemon keeps applying the last known revision. This file is not a program. Only the daemon opens it, to
	// compare its content.
	const file = contract.DirTemp + `\readme.txt`
	write(t, r, file, "damaged", winos.AccessAdministrators)
	eventually(t, "reconciling without an identity", func() bool { return read(t, r, file) == "ours" })
	daemon := service(t, r, contract.ServiceDaemon).PID
	join(t, r) // the operator joins the host again
	fresh := read(t, r, contract.PathDaemonCertificate)
	if fresh == old || !expires(t, fresh).After(r.Host().System.Now().Add(13*day)) {
		t.Errorf("the certificate expires at %s", expires(t, fresh))
	}
	if service(t, r, contract.ServiceDaemon).PID == daemon {
		t.Error("the daemon still runs with its expired certificate")
	}
	if kubelet := read(t, r, contract.DirKubeletPKI+`\kubelet-client-current.pem`); !expires(t,
		kubelet).After(r.Host().System.Now()) {
		t.Errorf("kubelet's certificate expires at %s, and kubelet was started %d times", expires(t, kubelet),
			r.kubelets.Load()-kubelets)
	}
	awaitReconciled(t, r)
	join(t, r)
	if n := r.kubelets.Load() - kubelets; n != 1 {
		t.Errorf("kubelet was started %d times, want once", n)
	}
}

func TestTheConfidentialPartComesWithBootstrap(t *testing.T) {
	t.Parallel()
	const proxy = "http://me:hunter2@proxy:3128"
	r := newRig(t, sim.Options{})
	c := contract.Confidential{
		Salt: []byte("0123456789abcdef"), Environment: map[string]string{"HTTPS_PROXY": proxy},
		Files: []contract.File{{Path: `C:\k\tls\certs\tls.key`, Content: "the key"}},
	}
	data, digest, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	request := bootstrapRequest()
	request.Manifest.Confidential, request.Manifest.ConfidentialEnvironment = digest, c.EnvironmentDigest()
	request.Manifest.WatchedEnvironmentVars = []string{"HTTPS_PROXY"}
	request.Revision, request.Confidential = versionOf(request.Manifest), data
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, preflightRequest(r)))
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, send(t, r.Host().Files, r.Home(), found.Missing)))

	spoilt := request
	spoilt.Confidential = append(bytes.Clone(data[:len(data)-1]), ' ', '}')
	if answer := call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, spoilt); answer.Problem == nil ||
		answer.Problem.Reason != contract.ReasonManifestInvalid || strings.Contains(answer.Problem.Detail, "hunter2") {
		t.Fatalf("with another confidential part: %v", answer.Problem)
	}
	spoilt.Confidential = nil
	if answer := call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, spoilt); answer.Problem == nil ||
		answer.Problem.Reason != contract.ReasonManifestInvalid {
		t.Fatalf("without the confidential part: %v", answer.Problem)
	}
	made := must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, request))
	if s := service(t, r, "kubelet"); s.Environment["HTTPS_PROXY"] != proxy {
		t.Errorf("kubelet's environment is %v", s.Environment)
	}
	kubelet := service(t, r, "kubelet").PID
	handover := r.handoverRequest(t, made.DaemonCSR)
	must(t, call[contract.HandoverAnswer](t, r, contract.VerbHandover, handover))
	awaitReconciled(t, r)
	if service(t, r, "kubelet").PID != kubelet {
		t.Error("the daemon restarted kubelet, although bootstrap had already applied everything")
	}
	if got := read(t, r, `C:\k\tls\certs\tls.key`); got != "the key" {
		t.Errorf("the key is %q", got)
	}
	if info, err := r.Host().Files.Stat(contract.PathState); err != nil || info.Access != winos.AccessAdministrators {
		t.Errorf("the state file: %+v, %v", info, err)
	}
	if strings.Contains(journal(t, r), "hunter2") || strings.Contains(strings.Join(r.CommandLines(), "\n"), "hunter2") {
		t.Error("the password is in the log or in a command line")
	}
	cleanUp(t, r)
	for _, line := range sim.Diff(r.fresh, r.Snapshot(), kept(r)...) {
		t.Error("after cleanup:", line)
	}
}
