package reconcile_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clienttesting "k8s.io/client-go/testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const secretProxy = "http://me:hunter2@proxy:3128"

// newCA creates a root certificate, and returns it in DER and in PEM.
func newCA(t *testing.T, name string) (der []byte, text string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA:     true, BasicConstraintsValid: true,
	}
	der, err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// times returns how many copies of a certificate the root store has.
func (r *rig) times(t *testing.T, der []byte) (n int) {
	t.Helper()
	all, err := r.Host().Trust.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range all {
		if bytes.Equal(other, der) {
			n++
		}
	}
	return n
}

func (r *rig) variable(t *testing.T, name string) (string, bool) {
	t.Helper()
	all, err := r.Host().Environment.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for other, value := range all {
		if strings.EqualFold(other, name) {
			return value, true
		}
	}
	return "", false
}

func TestA24_AProxyReachesTheSystemAndEveryServiceAndLeavesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		if err := r.Host().Environment.Set(t.Context(), "https_proxy", "http://before"); err != nil {
			t.Fatal(err)
		}
		holds(t, r)
		watched := func(m contract.Manifest) contract.Manifest {
			m.WatchedEnvironmentVars = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
			return m
		}
		kubelet := r.pid(t, "kubelet")
		two := r.want(t, watched(manifest()),
			contract.Confidential{Environment: map[string]string{"HTTPS_PROXY": secretProxy}})
		pass(10 * time.Second)
		r.expectStatus(t, two, "")
		if value, _ := r.variable(t, "HTTPS_PROXY"); value != secretProxy {
			t.Errorf("the system variable is %q", value)
		}
		for _, s := range manifest().Services {
			got, err := r.Host().Services.Get(t.Context(), s.Name)
			if err != nil || got.Environment["HTTPS_PROXY"] != secretProxy ||
				got.Environment["HTTP_PROXY"] != "http://proxy" || got.State != winos.ServiceRunning {
				t.Errorf("%s: %+v, %v", s.Name, got, err)
			}
		}
		if env := *r.environment.Load(); env["HTTPS_PROXY"] != secretProxy {
			t.Errorf("the environment of kube-proxy's process has %q", env["HTTPS_PROXY"])
		}
		if r.pid(t, "kubelet") == kubelet {
			t.Error("kubelet was not restarted, so it does not know the proxy")
		}
		for _, line := range r.CommandLines() {
			if strings.Contains(line, "hunter2") {
				t.Errorf("the password is in a command line: %s", line)
			}
		}
		bare := watched(manifest())
		bare.EnvironmentVars = nil
		three := r.want(t, bare, contract.Confidential{})
		pass(10 * time.Second)
		r.expectStatus(t, three, "")
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
			if value, there := r.variable(t, name); there {
				t.Errorf("the system still has %s=%q", name, value)
			}
			if value := (*r.environment.Load())[name]; value != "" {
				t.Errorf("kube-proxy's process still has %s=%q", name, value)
			}
		}
	})
}

func TestA25_ARootIsThereOnceAndGoesAndOthersStay(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		trust := r.Host().Trust
		ours, oursText := newCA(t, "ours")
		theirs, theirsText := newCA(t, "theirs, and wanted")
		strange := []byte{0x30, 0x03, 0x02, 0x01, 0x80} // an invalid certificate
		for _, der := range [][]byte{theirs, strange} {
			if err := trust.Add(t.Context(), der); err != nil {
				t.Fatal(err)
			}
		}
		holds(t, r)
		kubelet := r.pid(t, "kubelet")
		texts := []string{oursText, theirsText}
		slices.Sort(texts)
		two := r.want(t, manifest(), contract.Confidential{Trust: texts})
		pass(5 * time.Second)
		r.expectStatus(t, two, "")
		check := func(when string, nOurs int) {
			t.Helper()
			if a, b, c := r.times(t, ours), r.times(t, theirs), r.times(t, strange); a != nOurs || b != 1 || c != 1 {
				t.Errorf("%s: ours %d times, theirs %d, strange %d", when, a, b, c)
			}
		}
		check("wanted", 1)
		if err := trust.Remove(t.Context(), ours); err != nil {
			t.Fatal(err)
		}
		pass(11 * time.Second)
		check("removed by hand, after 11 s", 1)
		three := r.want(t, manifest(), contract.Confidential{})
		pass(5 * time.Second)
		r.expectStatus(t, three, "")
		check("withdrawn", 0)
		if r.pid(t, "kubelet") != kubelet {
			t.Error("kubelet was restarted for a certificate")
		}
	})
}

func TestA21A26_CertificatesAreReplacedWithoutARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		rotated := func(version string) (contract.Manifest, contract.Confidential) {
			m := manifest()
			m.Files = append(m.Files, contract.File{Path: contract.PathKubeletCA, Content: "ca " + version})
			return m, contract.Confidential{Files: []contract.File{
				{Path: `C:\k\tls\certs\tls.crt`, Content: "certificate " + version},
				{Path: `C:\k\tls\certs\tls.key`, Content: "key " + version},
			}}
		}
		before := map[string]uint32{}
		for _, s := range manifest().Services {
			before[s.Name] = r.pid(t, s.Name)
		}
		for _, version := range []string{"1", "2"} {
			m, c := rotated(version)
			now := r.want(t, m, c)
			pass(2 * time.Second)
			r.expectStatus(t, now, "")
			for path, want := range map[string]string{contract.PathKubeletCA: "ca ",
				`C:\k\tls\certs\tls.crt`: "certificate ", `C:\k\tls\certs\tls.key`: "key "} {
				if got := r.read(t, path); got != want+version {
					t.Errorf("%s is %q", path, got)
				}
				if info, err := r.Host().Files.Stat(path); err != nil || info.Access != winos.AccessAdministrators {
					t.Errorf("%s: %+v, %v", path, info, err)
				}
			}
		}
		for name, pid := range before {
			if r.pid(t, name) != pid {
				t.Errorf("%s was restarted", name)
			}
		}
	})
}

func rules(sources ...string) contract.Confidential {
	var c contract.Confidential
	for _, s := range sources {
		c.Mirrors = append(c.Mirrors, contract.MirrorRule{Source: s, Kind: contract.PullByTag,
			Mirrors: []string{"m.example/" + s}})
	}
	return c
}

func TestA22_MirrorsFollowWithoutARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		runtime := r.pid(t, "containerd")
		hosts := func(source string) string { return r.read(t, hostsFile(source)) }
		two := r.want(t, manifest(), rules("a.example", "b.example"))
		pass(2 * time.Second)
		r.expectStatus(t, two, "")
		if hosts("a.example") != "m.example/a.example" || hosts("b.example") != "m.example/b.example" {
			t.Errorf("%q, %q", hosts("a.example"), hosts("b.example"))
		}
		if err := r.Host().Files.Remove(hostsFile("a.example")); err != nil {
			t.Fatal(err)
		}
		pass(11 * time.Second)
		if hosts("a.example") != "m.example/a.example" {
			t.Error("a file that was deleted did not come back")
		}
		// The registry returns a problem without files, so containerd's files must stay unchanged.
		r.pulls.fail(contract.NewProblem(contract.ReasonPortInUse, "x"))
		three := r.want(t, manifest(), rules("b.example", "c.example"))
		pass(10 * time.Second)
		r.expectStatus(t, two, contract.ReasonPortInUse)
		if hosts("a.example") == "absent" || hosts("b.example") == "absent" || hosts("c.example") != "absent" {
			t.Errorf("%q, %q, %q", hosts("a.example"), hosts("b.example"), hosts("c.example"))
		}
		// The registry returns a problem with files, so containerd uses these files until the problem is gone.
		r.pulls.fail(contract.NewProblem(contract.ReasonPortInUse, "x"),
			contract.File{Path: hostsFile("b.example"), Content: "elsewhere"})
		pass(time.Minute)
		r.expectStatus(t, two, contract.ReasonPortInUse)
		if hosts("a.example") != "absent" || hosts("b.example") != "elsewhere" || hosts("c.example") != "absent" {
			t.Errorf("%q, %q, %q", hosts("a.example"), hosts("b.example"), hosts("c.example"))
		}
		// The problem has lasted for more than a minute, so the next try is up to 77 s away.
		r.pulls.fail(nil)
		pass(2 * time.Minute)
		r.expectStatus(t, three, "")
		if hosts("a.example") != "absent" || hosts("c.example") != "m.example/c.example" {
			t.Errorf("%q, %q", hosts("a.example"), hosts("c.example"))
		}
		if there, err := winos.Exists(r.Host().Files, contract.DirRegistries+`\a.example`); err != nil || there {
			t.Error("an empty directory is left for a registry without rules")
		}
		four := r.want(t, manifest(), contract.Confidential{})
		pass(2 * time.Second)
		r.expectStatus(t, four, "")
		if there, err := winos.Exists(r.Host().Files, contract.DirRegistries); err != nil || !there ||
			hosts("b.example") != "absent" {
			t.Errorf("without rules: %v, %v", there, err)
		}
		if r.pid(t, "containerd") != runtime {
			t.Error("containerd was restarted")
		}
	})
}

// If a folder matches a registry, containerd uses the first such folder, even if the folder is empty. Then containerd
// ignores the rules in all other folders.
func TestAFolderThatNobodyWantsHidesNoRuleFromContainerd(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		leave := func() {
			t.Helper()
			r.write(t, hostsFile("Strange.example"), "by hand")
			if err := r.Host().Files.MkdirAll(contract.DirRegistries+`\left.example`, winos.AccessInherit); err != nil {
				t.Fatal(err)
			}
		}
		gone := func(when string) {
			t.Helper()
			for _, name := range []string{"strange.example", "left.example"} {
				if there, err := winos.Exists(r.Host().Files, contract.DirRegistries+`\`+name); err != nil || there {
					t.Errorf("%s %s is there, %v", when, name, err)
				}
			}
			if got := r.read(t, hostsFile("a.example")); got != "m.example/a.example" {
				t.Errorf("%s the rule is %q", when, got)
			}
		}
		leave()
		two := r.want(t, manifest(), rules("a.example"))
		pass(10 * time.Second)
		r.expectStatus(t, two, "")
		gone("with another revision")
		leave()
		pass(time.Hour)
		gone("after an hour")
	})
}

func TestASecretThatIsNotWhatTheManifestNamesChangesNothing(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, r *rig, version string){
		"missing": func(t *testing.T, r *rig, version string) {
			if err := r.api.Tracker().Delete(secrets, namespace, contract.ServicesSecretPrefix+version); err != nil {
				t.Fatal(err)
			}
		},
		"another": func(t *testing.T, r *rig, version string) { r.swapSecret(t, version) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				version := r.publishBoth(t, another("two"),
					contract.Confidential{Environment: map[string]string{"NO_PROXY": "x"}})
				spoil(t, r, version)
				r.annotate(t, contract.DesiredRevisionAnnotation, version)
				pass(10 * time.Second)
				a := r.annotations(t)
				if a[contract.RevisionAnnotation] != one() ||
					!strings.HasPrefix(a[contract.ApplyStatusAnnotation], "Manifest") ||
					strings.Contains(a[contract.ApplyStatusAnnotation], "hunter2") {
					t.Errorf("the Node's annotations are %v", a)
				}
				r.expectServing(t, "{}")
				if n := reads(r); n > 5 {
					t.Errorf("the Secret was read %d times within 10 s", n)
				}
			})
		})
	}
}

// swapSecret replaces the Secret of a revision by the Secret of another revision.
func (r *rig) swapSecret(t *testing.T, version string) {
	t.Helper()
	other := r.publishBoth(t, another("other"),
		contract.Confidential{Environment: map[string]string{"NO_PROXY": "hunter2"}})
	from, err := r.api.Tracker().Get(secrets, namespace, contract.ServicesSecretPrefix+other)
	if err != nil {
		t.Fatal(err)
	}
	to, ok := from.DeepCopyObject().(*unstructured.Unstructured)
	if !ok {
		t.Fatalf("the Secret is a %T", from)
	}
	to.SetName(contract.ServicesSecretPrefix + version)
	if err = r.api.Tracker().Update(secrets, to, namespace); err != nil {
		t.Fatal(err)
	}
}

// reads counts the requests for the Secrets of revisions.
func reads(r *rig) (n int) {
	for _, action := range r.api.Actions() {
		list, ok := action.(clienttesting.ListAction)
		if ok && action.GetResource() == secrets &&
			!strings.Contains(list.GetListRestrictions().Fields.String(), contract.LatestSecret) {
			n++
		}
	}
	return n
}

func TestAFightIsNoticedSaidAndNotFought(t *testing.T) {
	for name, c := range map[string]struct {
		undo func(t *testing.T, r *rig) error
		done func(t *testing.T, r *rig) bool
	}{
		"over a variable": {
			func(t *testing.T, r *rig) error { return r.Host().Environment.Unset(t.Context(), "HTTP_PROXY") },
			func(t *testing.T, r *rig) bool { _, there := r.variable(t, "HTTP_PROXY"); return there },
		},
		"over a file": {
			func(t *testing.T, r *rig) error { r.write(t, contract.PathKubeletConfig, "theirs"); return nil },
			func(t *testing.T, r *rig) bool { return r.read(t, contract.PathKubeletConfig) == "{}" },
		},
		"over a service's command": {
			func(t *testing.T, r *rig) error {
				s, err := r.Host().Services.Get(t.Context(), "kubelet")
				s.Command += " --theirs"
				return errors.Join(err, r.Host().Services.Apply(t.Context(), s.ServiceConfig))
			},
			func(t *testing.T, r *rig) bool {
				s, err := r.Host().Services.Get(t.Context(), "kubelet")
				return err == nil && s.Command == contract.PathKubelet
			},
		},
		"over a service's start type": {
			func(_ *testing.T, r *rig) error { return r.DisableService("kubelet") },
			func(t *testing.T, r *rig) bool {
				s, err := r.Host().Services.Get(t.Context(), "kubelet")
				return err == nil && !s.NoAutoStart
			},
		},
		"over rights": {
			func(_ *testing.T, r *rig) error { return r.SetAccess(contract.DirK, winos.AccessInherit) },
			func(t *testing.T, r *rig) bool {
				info, err := r.Host().Files.Stat(contract.DirK)
				return err == nil && info.Access == winos.AccessAdministrators
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				fixes := 0
				for range 180 { // checks every 20 s for an hour
					if c.done(t, r) {
						fixes++
						if err := c.undo(t, r); err != nil {
							t.Fatal(err)
						}
					}
					pass(20 * time.Second)
				}
				if fixes < 4 || fixes > 12 {
					t.Errorf("the change was reverted %d times within an hour", fixes-1)
				}
				r.expectStatus(t, one(), contract.ReasonForeignInterference)
				for _, s := range manifest().Services {
					if state := r.state(t, s.Name); state != winos.ServiceRunning {
						t.Errorf("%s is %s", s.Name, state)
					}
				}
				pass(time.Hour) // the other program stops its changes
				if !c.done(t, r) {
					t.Error("the daemon did not revert the last change")
				}
				r.expectStatus(t, one(), "")
			})
		})
	}
}

// A user changes a service by hand just before the next revision. Nevertheless, that revision must be verified.
func TestAFightThatIsOverKeepsNoRevisionBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		for range 3 {
			s, err := r.Host().Services.Get(t.Context(), "kubelet")
			s.Command += " --theirs"
			if err = errors.Join(err, r.Host().Services.Apply(t.Context(), s.ServiceConfig)); err != nil {
				t.Fatal(err)
			}
			pass(20 * time.Second)
		}
		r.expectStatus(t, one(), contract.ReasonForeignInterference)
		two := r.want(t, manifest(), rules("a.example"))
		pass(3 * time.Minute)
		r.expectStatus(t, two, "")
		r.write(t, contract.PathKubeletConfig, "theirs") // another object is changed, and only once
		pass(6 * time.Minute)
		r.expectStatus(t, two, "")
		s, err := r.Host().Services.Get(t.Context(), "kubelet")
		s.Command += " --theirs"
		if err = errors.Join(err, r.Host().Services.Apply(t.Context(), s.ServiceConfig)); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Second)
		r.expectStatus(t, two, contract.ReasonForeignInterference) // the earlier changes still count
	})
}

func TestARestartWithAStrangersCommandIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		services := r.Host().Services
		s, err := services.Get(t.Context(), "kube-proxy")
		if err != nil {
			t.Fatal(err)
		}
		s.Command += " --theirs"
		if err = errors.Join(services.Apply(t.Context(), s.ServiceConfig), services.Stop(t.Context(), "kube-proxy"),
			services.Start(t.Context(), "kube-proxy")); err != nil {
			t.Fatal(err)
		}
		theirs := r.pid(t, "kube-proxy")
		pass(11 * time.Second)
		if now, err := services.Get(t.Context(), "kube-proxy"); err != nil || now.Command != contract.PathKubeProxy ||
			now.PID == theirs || now.State != winos.ServiceRunning {
			t.Errorf("the service is %+v, %v; the foreign process is %d", now, err, theirs)
		}
	})
}

func TestA35_RightsThatSomebodyLoosenedAreRestored(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		paths := []string{contract.DirK, contract.DirDaemonCerts, contract.DirKubeletPKI, contract.DirRegistries,
			state.DirCNIState, contract.PathState, contract.PathKubeletConfig, contract.PathKubelet}
		kubelet := r.pid(t, "kubelet")
		for _, path := range paths {
			if err := r.SetAccess(path, winos.AccessInherit); err != nil {
				t.Fatal(err)
			}
		}
		pass(11 * time.Second)
		for _, path := range paths {
			if info, err := r.Host().Files.Stat(path); err != nil || info.Access != winos.AccessAdministrators {
				t.Errorf("%s: %+v, %v", path, info, err)
			}
		}
		if r.pid(t, "kubelet") != kubelet {
			t.Error("kubelet was restarted")
		}
		r.expectStatus(t, one(), "")
	})
}

func TestPayloadThatNobodyNeedsIsRemovedAndOneStepBackStays(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		stored := func(content string) bool {
			there, err := winos.Exists(r.Host().Files, contract.DirStore+`\`+digestOf(content))
			if err != nil {
				t.Fatal(err)
			}
			return there
		}
		next := func(content string) string {
			r.write(t, contract.DirStore+`\`+digestOf(content), content)
			m := manifest()
			for i, f := range m.Files {
				if f.Path == contract.PathKubeProxy {
					m.Files[i].Digest, m.Files[i].Size = digestOf(content), int64(len(content))
				}
			}
			version := r.publish(t, m)
			r.annotate(t, contract.DesiredRevisionAnnotation, version)
			pass(time.Minute)
			r.expectStatus(t, version, "")
			return version
		}
		// The host's clock advances by a day, and an hour passes until the next check of the store.
		day := func(n int) { r.SetClockOffset(time.Duration(n) * 25 * time.Hour); pass(time.Hour + 3*time.Minute) }
		next("MZ proxy 2")
		day(1)
		if !stored("MZ proxy") || !stored("MZ proxy 2") {
			t.Error("the payload for a rollback is gone")
		}
		r.write(t, contract.DirStore+`\`+digestOf("staged"), "staged")
		next("MZ proxy 3")
		pass(time.Hour + 3*time.Minute)
		if !stored("staged") || stored("MZ proxy") {
			t.Errorf("the staged payload is stored: %v, the payload of two revisions ago: %v", stored("staged"),
				stored("MZ proxy"))
		}
		day(2)
		if stored("staged") || !stored("MZ proxy 2") || !stored("MZ proxy 3") || !stored("MZ kubelet") {
			t.Errorf("stored: staged %v, 2 %v, 3 %v, kubelet %v", stored("staged"), stored("MZ proxy 2"),
				stored("MZ proxy 3"), stored("MZ kubelet"))
		}
		r.annotate(t, contract.DesiredRevisionAnnotation, one())
		pass(time.Minute)
		if status := r.annotations(t)[contract.ApplyStatusAnnotation]; !strings.HasPrefix(status,
			"PayloadIncomplete") {
			t.Errorf("the status is %q", status)
		}
		if got := r.read(t, contract.PathKubeProxy); got != "MZ proxy 3" {
			t.Errorf("kube-proxy is %q", got)
		}
	})
}

func TestTheRouteToTheMetadataServiceIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		to := netip.MustParseAddr("169.254.169.254")
		holds(t, r)
		if r.Routes()[to] {
			t.Error("a route exists that was not requested")
		}
		r.SetMetadata(aws("win-a.internal"), true)
		m := manifest()
		m.Services[1].Command += " --hostname-override=CLOUD_NAME"
		m.Services[1].HostVariables = []contract.HostVariable{{Name: "CLOUD_NAME", Fact: contract.FactAWSHostname}}
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, m))
		pass(30 * time.Second)
		if !r.Routes()[to] {
			t.Error("the route is missing")
		}
		pass(time.Minute)
		r.expectStatus(t, versionOf(m), "")
		if s, err := r.Host().Services.Get(t.Context(), "kubelet"); err != nil ||
			!strings.HasSuffix(s.Command, "--hostname-override=win-a.internal") {
			t.Errorf("kubelet: %q, %v", s.Command, err)
		}
		r.LoseRoutes()
		pass(11 * time.Second)
		if !r.Routes()[to] {
			t.Error("the route did not come back after a network change")
		}
		r.stopDaemon()
		reboot(t, r)
		r.SetMetadata(nil, false) // the metadata service is late, but its name resolves
		r.start(t, r.api)
		pass(time.Minute)
		if !r.Routes()[to] || r.state(t, "kubelet") != winos.ServiceRunning {
			t.Errorf("after a reboot: route %v, kubelet %s", r.Routes()[to], r.state(t, "kubelet"))
		}
		r.expectStatus(t, versionOf(m), "")
	})
}
