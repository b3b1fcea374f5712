package pull_test

import (
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distribution/distribution/v3/configuration"

	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

const source = "quay.test"

func TestA22_ImagesComeFromTheFirstMirrorThatHasThem(t *testing.T) {
	t.Parallel()
	for access, auth := range map[string]func(*testing.T, *network, string) (configuration.Auth, string){
		"for everybody": open, "for users": withUsers, "for users of a token server": withTokens,
	} {
		for _, kind := range []string{"tag", "digest"} {
			t.Run(access+", by "+kind, func(t *testing.T) {
				t.Parallel()
				n := newNetwork(t)
				image := newImage(t, 2<<20)
				first := newRegistry(t, n, "m1.test:5000", auth).push(t, "copies/of/team/app", image)
				second := newRegistry(t, n, "m2.test", auth).push(t, "app", image)
				origin := newRegistry(t, n, source, auth).push(t, "team/app", image)
				d := newNode(t, n)
				d.apply(t, settings{
					rules: []string{source + "/team " + kind + " m1.test:5000/copies/of/team m2.test"},
					users: map[string]string{"m1.test:5000/copies": first.user, "https://m2.test/v2/": second.user,
						source + "/team/app": origin.user},
				})
				reference := source + "/team/app:v1"
				if kind == "digest" {
					reference = source + "/team/app@" + digestOf(t, image)
				}
				d.mustPull(t, reference)
				if n.connections("m2.test") != 0 || n.connections(source) != 0 ||
					first.asked("/copies/of/team/app/") == 0 {
					t.Errorf("only the first mirror must be used; "+
						"connections to the second mirror: %d, to the source: %d", n.connections("m2.test"),
						n.connections(source))
				}
				if d.said() != "" {
					t.Error(d.said())
				}
			})
		}
	}
}

func TestA22_MirrorsThatFailArePassedOver(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request, http.Handler){
		"refuses":    refuses(http.StatusForbidden),
		"lacks it":   refuses(http.StatusNotFound),
		"is broken":  refuses(http.StatusInternalServerError),
		"is silent":  silent,
		"breaks off": breaking,
	} {
		for _, kind := range []string{"tag", "digest"} {
			t.Run(name+", by "+kind, func(t *testing.T) {
				t.Parallel()
				n := newNetwork(t)
				image := newImage(t, 3<<20)
				bad := newRegistry(t, n, "m1.test", open).push(t, "team/app", image).failing(fault)
				good := newRegistry(t, n, "m2.test", withTokens).push(t, "x/team/app", image)
				d := newNode(t, n)
				if name == "is silent" {
					d = newNodeWith(t, n, resolver.Options{FirstByte: 2 * time.Second, LastFirstByte: 20 * time.Second})
				}
				d.apply(t, settings{rules: []string{source + " " + kind + " m1.test m2.test/x never"},
					users: map[string]string{"m2.test": good.user}})
				reference := source + "/team/app:v1"
				if kind == "digest" {
					reference = source + "/team/app@" + digestOf(t, image)
				}
				d.mustPull(t, reference)
				if bad.asked("") == 0 || n.connections(source) != 0 {
					t.Error("the first mirror was not contacted, or the source was")
				}
				if !strings.Contains(d.said(), "m1.test/team/app: ") {
					t.Errorf("the resolver does not report the failed mirror: %s", d.said())
				}
			})
		}
	}
}

func TestA22_AMirrorThatIsDownOrUnknownIsPassedOver(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	image := newImage(t, 100_000)
	newRegistry(t, n, source, open).push(t, "team/app", image)
	n.add("down.test", "127.0.0.1:1")
	d := newNode(t, n)
	d.apply(t, settings{rules: []string{source + " tag down.test unknown.test"}})
	d.mustPull(t, source+"/team/app:v1")
	for _, want := range []string{"down.test/team/app: ", "unknown.test/team/app: "} {
		if !strings.Contains(d.said(), want) {
			t.Errorf("the resolver's messages lack %q: %s", want, d.said())
		}
	}
	// A pull has nine requests. Only the first of them may contact a dead mirror. The others must skip the mirror.
	if a, b := n.connections("down.test"), n.connections("unknown.test"); a > 2 || b > 2 {
		t.Errorf("the dead mirrors were contacted %d and %d times, want at most 2", a, b)
	}
}

// TestA22_WrongBytesNeverBecomeAnImage uses a mirror that sends wrong content. The resolver passes a large layer on
// while it arrives, so it detects wrong content only at the end, and this pull fails. containerd starts the next pull
// without the data of the first, and gets the correct layer. After the first wrong layer, containerd cancels all
// others, so their errors stay undetected: each wrong large layer may need another attempt.
func TestA22_WrongBytesNeverBecomeAnImage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		where    func(size int) int
		about    string // part of the paths whose content is wrong
		large    int    // number of large layers whose content is wrong
		attempts int
	}{
		"about everything":          {func(int) int { return 0 }, "/", 4, 1},
		"at the start of blobs":     {func(int) int { return 0 }, "/blobs/", 1, 2},
		"at the start of all blobs": {func(int) int { return 0 }, "/blobs/", 4, 2},
		"at the end of blobs":       {func(size int) int { return size - 1 }, "/blobs/", 1, 2},
		"in the middle of indexes":  {func(size int) int { return size / 2 }, "/manifests/", 4, 1},
	} {
		for _, kind := range []string{"tag", "digest"} {
			t.Run(name+", by "+kind, func(t *testing.T) {
				t.Parallel()
				n := newNetwork(t)
				image := newImage(t, 3<<20)
				honest := layersOf(t, image)[c.large:]
				newRegistry(t, n, "m2.test", open).push(t, "team/app", image)
				newRegistry(t, n, "m1.test", open).push(t, "team/app",
					image).failing(func(w http.ResponseWriter, r *http.Request, real http.Handler) {
					if !strings.Contains(r.URL.Path, c.about) || slices.Contains(honest, path.Base(r.URL.Path)) {
						real.ServeHTTP(w, r)
						return
					}
					lying(c.where)(w, r, real)
				})
				d := newNode(t, n)
				pull := d.withGarbageCollection(t)
				d.apply(t, settings{rules: []string{source + " " + kind + " m1.test m2.test never"}})
				reference := source + "/team/app:v1"
				if kind == "digest" {
					reference = source + "/team/app@" + digestOf(t, image)
				}
				err := pull(reference)
				for i := 1; err != nil && i < c.attempts; i++ {
					err = pull(reference)
				}
				if err != nil {
					t.Fatal(err, d.said())
				}
				if !strings.Contains(d.said(), "m1.test/team/app: WrongContent") {
					t.Error(d.said())
				}
			})
		}
	}
}

func TestA22_ASourceThatMustNeverBeContactedIsNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rule, reference string }{
		"by tag":             {source + " tag m1.test never", source + "/team/app:v1"},
		"by a wildcard":      {"*.test digest m1.test never", source + "/team/app:v1"},
		"of a namespace":     {source + "/team tag m1.test never", source + "/team/app:v1"},
		"with a port":        {source + ":8443 tag m1.test never", source + ":8443/team/app:v1"},
		"without any mirror": {source + " tag never", source + "/team/app:v1"},
	} {
		for state, stop := range map[string]bool{"": false, ", with the daemon down": true} {
			t.Run(name+state, func(t *testing.T) {
				t.Parallel()
				n := newNetwork(t)
				image := newImage(t, 1000)
				host, _, _ := strings.Cut(c.reference, "/")
				newRegistry(t, n, host, open).push(t, "team/app", image)
				newRegistry(t, n, "m1.test", open)
				d := newNode(t, n)
				d.apply(t, settings{rules: []string{c.rule}})
				if stop {
					d.stop()
				}
				d.mustFail(t, c.reference)
				if n.connections(host) != 0 {
					t.Errorf("the registry was contacted %d times", n.connections(host))
				}
			})
		}
	}
}

func TestA22_OfOneRegistryOnlyTheNamedRepositoriesHaveMirrors(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	ours, theirs := newImage(t, 1000), newImage(t, 1000)
	m := newRegistry(t, n, "m1.test", open).push(t, "somewhere/else", ours)
	newRegistry(t, n, source, open).push(t, "team/app", ours).push(t, "team/app2", theirs)
	d := newNode(t, n)
	d.apply(t, settings{rules: []string{source + "/team/app tag m1.test/somewhere/else never"}})
	d.mustPull(t, source+"/team/app:v1")
	if n.connections(source) != 0 {
		t.Error("the source was contacted, but it must not be")
	}
	before := m.asked("")
	d.mustPull(t, source+"/team/app2:v1")
	if m.asked("") != before {
		t.Error("the mirror of another repository was contacted")
	}
}

func TestA22_SourcesOfEveryForm(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rule, reference, mirror, repository string }{
		"with a port": {source + ":8443 tag m1.test/x", source + ":8443/team/app:v1", "m1.test",
			"x/team/app"},
		"a wildcard": {"*.apps.test tag m1.test/x", "r.apps.test/team/app:v1", "m1.test", "x/team/app"},
		"a wildcard and a port": {"*.apps.test tag m1.test", "r.apps.test:5000/team/app:v1", "m1.test:5000",
			"team/app"},
		"Docker Hub":   {"docker.io tag m1.test/hub", "docker.io/library/app:v1", "m1.test", "hub/library/app"},
		"a repository": {source + "/a/b/c tag m1.test/d", source + "/a/b/c:v1", "m1.test", "d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			newRegistry(t, n, c.mirror, withTokens).push(t, c.repository, newImage(t, 1000))
			host, _, _ := strings.Cut(c.mirror, ":")
			d := newNode(t, n)
			d.apply(t, settings{rules: []string{c.rule},
				users: map[string]string{c.mirror: "user-of-" + host + ":p4ssw0rd"}})
			d.mustPull(t, c.reference)
		})
	}
}

func TestA22_DockerHubItselfIsFound(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	hub := newRegistry(t, n, "registry-1.docker.io", withTokens).push(t, "library/app", newImage(t, 1000))
	d := newNode(t, n)
	d.apply(t, settings{rules: []string{"docker.io digest m1.test"},
		users: map[string]string{"https://index.docker.io/v1/": hub.user}})
	d.mustPull(t, "docker.io/library/app:v1")
}

func TestA22_WithTheDaemonDownNothingIsPulledAroundTheRules(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	image := newImage(t, 1000)
	m := newRegistry(t, n, "m1.test", open).push(t, "x/team/app", image)
	origin := newRegistry(t, n, source, open).push(t, "team/app", image)
	d := newNode(t, n)
	d.apply(t, settings{rules: []string{source + " tag m1.test/x", source + " digest m1.test/x"}})
	d.stop()
	d.mustFail(t, source+"/team/app:v1")
	if m.asked("") != 0 || origin.asked("") != 0 {
		t.Error("containerd contacted a registry directly")
	}
}

// TestA22_AChangeInTheMiddleOfAPull replaces the mirror while the first layer is transferred. The running pull must
// succeed, and the next pull must use the new mirror only.
func TestA22_AChangeInTheMiddleOfAPull(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	image := newImage(t, 3<<20)
	newRegistry(t, n, "m2.test", open).push(t, "team/app", image)
	d := newNode(t, n)
	var once sync.Once
	newRegistry(t, n, "m1.test", open).push(t, "team/app",
		image).failing(func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		if strings.Contains(r.URL.Path, "/blobs/") {
			once.Do(func() { d.apply(t, settings{rules: []string{source + " tag m2.test never"}}) })
		}
		real.ServeHTTP(w, r)
	})
	d.apply(t, settings{rules: []string{source + " tag m1.test never"}})
	d.mustPull(t, source+"/team/app:v1")
	d.forget(t)
	before := n.connections("m1.test")
	d.mustPull(t, source+"/team/app:v1")
	if n.connections("m1.test") != before {
		t.Error("the old mirror was contacted again")
	}
}

func TestA22_LayersComeInParallelPartsIfContainerdWantsThat(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	image := newImage(t, 3<<20)
	newRegistry(t, n, "m1.test", open).push(t, "team/app", image).failing(breaking)
	newRegistry(t, n, "m2.test", withTokens).push(t, "team/app", image)
	d := newNode(t, n)
	d.parallel = 4
	d.apply(t, settings{rules: []string{source + " tag m1.test m2.test never"},
		users: map[string]string{"m2.test": "user-of-m2.test:p4ssw0rd"}})
	d.mustPull(t, source+"/team/app:v1")
}

// TestA22_TheDaemonStopsInTheMiddleOfAPull stops the daemon during a pull. The pull must fail, so that kubelet repeats
// it, and containerd must not contact a registry directly.
func TestA22_TheDaemonStopsInTheMiddleOfAPull(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	image := newImage(t, 5<<20)
	origin := newRegistry(t, n, source, open).push(t, "team/app", image)
	d := newNode(t, n)
	var stopping sync.WaitGroup
	var once sync.Once
	newRegistry(t, n, "m1.test", open).push(t, "team/app",
		image).failing(func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		half := &recorder{header: w.Header()}
		real.ServeHTTP(half, r)
		content := half.body.Bytes()
		w.WriteHeader(max(half.status, http.StatusOK))
		if len(content) < 5<<20 {
			_, _ = w.Write(content)
			return
		}
		_, _ = w.Write(content[:3<<20])
		_ = http.NewResponseController(w).Flush()
		once.Do(func() { stopping.Go(d.stop) })
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})
	d.apply(t, settings{rules: []string{source + "/team tag m1.test/team"}})
	d.mustFail(t, source+"/team/app:v1")
	stopping.Wait()
	if origin.asked("") != 0 {
		t.Error("the source was contacted although the daemon was down")
	}
}

// TestA22_TakingMirrorsAwayLeavesTheSource removes all mirrors. The next pull must use the source.
func TestA22_TakingMirrorsAwayLeavesTheSource(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	image := newImage(t, 1000)
	m := newRegistry(t, n, "m1.test", open).push(t, "team/app", image)
	origin := newRegistry(t, n, source, withUsers).push(t, "team/app", image)
	d := newNode(t, n)
	users := map[string]string{source: origin.user}
	d.apply(t, settings{rules: []string{source + " tag m1.test never"}, users: users})
	d.mustPull(t, source+"/team/app:v1")
	d.forget(t)
	before := m.asked("")
	d.apply(t, settings{users: users})
	d.mustPull(t, source+"/team/app:v1")
	if m.asked("") != before || origin.asked("") == 0 {
		t.Error("the mirror was contacted, or the source was not")
	}
}

func TestA23_AChangedPullSecretOpensARegistry(t *testing.T) {
	t.Parallel()
	for access, auth := range map[string]func(*testing.T, *network, string) (configuration.Auth,
		string){"users": withUsers, "tokens": withTokens} {
		t.Run(access, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			origin := newRegistry(t, n, source, auth).push(t, "team/app", newImage(t, 1000))
			d := newNode(t, n)
			d.apply(t, settings{users: map[string]string{source: "user-of-" + source + ":wrong"}})
			d.mustFail(t, source+"/team/app:v1")
			if !strings.Contains(d.said(), "Denied") {
				t.Error(d.said())
			}
			d.apply(t, settings{users: map[string]string{source: origin.user}})
			d.mustPull(t, source+"/team/app:v1")
		})
	}
}
