package payloadimage

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/lab/registry"
)

const repository = "windows-nodes/wmco-payload"

// standins is a payload of stand-ins of one version.
func standins(tb testing.TB, version string) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	if _, err := payload.WriteStandins(dir, version); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func opened(tb testing.TB, dir string) *payload.Dir {
	tb.Helper()
	d, err := payload.OpenDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// setting is a store, a registry, and a way from the one to the other.
type setting struct {
	ca       *registry.CA
	registry *registry.Registry
	access   Access
	store    *Store
	embedded string
	// stop ends the last process that was started.
	stop func()
}

func newSetting(t *testing.T) *setting {
	t.Helper()
	ca := registry.NewCA(t, "registries")
	s := &setting{ca: ca, registry: registry.Start(t, ca), access: Access{CA: ca.PEM}, embedded: standins(t, "v1.36.0")}
	s.store = s.start(t, t.TempDir())
	return s
}

// start is an operator's process with a directory.
func (s *setting) start(t *testing.T, dir string) *Store {
	t.Helper()
	store, err := New(t.Context(), Options{Dir: dir, Embedded: opened(t, s.embedded)})
	if err != nil {
		t.Fatal(err)
	}
	store.retry = wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 1 << 30}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Start(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	return store
}

// push puts an image into a registry, and gives its name.
func (s *setting) push(t *testing.T, r *registry.Registry, i v1.Image) string {
	t.Helper()
	name := r.PushImage(t, i, repository)
	r.Asked()
	return name
}

// until asks the store until its answer is as told.
func (s *setting) until(t *testing.T, store *Store, image string,
	is func(*payload.Dir, *contract.Problem) bool) *contract.Problem {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		dir, problem := store.Want(image, s.access)
		if is(dir, problem) {
			return problem
		}
		select {
		case <-store.Changed():
		case <-limit:
			t.Fatalf("the store answers %v, %v", dir, problem)
		}
	}
}

func version(d *payload.Dir) string {
	if d == nil {
		return "none"
	}
	return d.Manifest().Version
}

func has(want string) func(*payload.Dir, *contract.Problem) bool {
	return func(d *payload.Dir, p *contract.Problem) bool { return version(d) == want && p == nil }
}

func fails(reason contract.Reason, in string, words ...string) func(*payload.Dir, *contract.Problem) bool {
	return func(d *payload.Dir, p *contract.Problem) bool {
		if version(d) != in || p == nil || p.Reason != reason {
			return false
		}
		for _, w := range words {
			if !strings.Contains(p.Detail, w) {
				return false
			}
		}
		return true
	}
}

func TestA61_ThePayloadComesFromAnImageByDigest(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	dir := standins(t, "v1.37.0")
	wanted := s.push(t, s.registry, registry.Payload(t, dir))
	s.until(t, s.store, "", has("v1.36.0"))
	s.until(t, s.store, wanted, has("v1.37.0"))
	blobs, err := s.store.Select(opened(t, dir).Manifest().Blobs())
	if err != nil || len(blobs) != len(payload.Parts()) {
		t.Fatalf("%d blobs, %v", len(blobs), err)
	}
	for _, b := range opened(t, s.embedded).Manifest().Blobs() {
		if _, ok := s.store.Blob(b.Digest); !ok {
			t.Errorf("blob %.8s of the payload before is not served", b.Digest)
		}
	}

	t.Run("another operator on the same disk needs no registry", func(t *testing.T) {
		s.registry.Asked()
		again := s.start(t, s.store.Dir)
		s.until(t, again, wanted, has("v1.37.0"))
		if asked := s.registry.Asked(); len(asked) > 0 {
			t.Errorf("it asks for %v", asked)
		}
	})
	t.Run("one with an empty disk does not take the embedded one instead", func(t *testing.T) {
		gone := strings.Replace(wanted, repository, "other", 1)
		s.until(t, s.start(t, t.TempDir()), gone, fails(contract.ReasonPayloadImageNotPulled, "none", "does not have the image"))
	})
	t.Run("without an image the embedded one is used", func(t *testing.T) {
		s.until(t, s.store, "", has("v1.36.0"))
		if _, err := s.store.Select(opened(t, dir).Manifest().Blobs()); err != nil {
			t.Errorf("blobs of the payload before: %v", err)
		}
	})
}

// An operator that is started anew goes on with what it pulled before only if that is what is wanted: it may be long
// ago that nodes had it. Until the other one is there, they stay, and can fetch what they have.
func TestA61_ARestartTakesNoPayloadThatNobodyWantsAnyMore(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	dir, next := standins(t, "v1.37.0"), registry.Payload(t, standins(t, "v1.38.0"))
	old, wanted := s.push(t, s.registry, registry.Payload(t, dir)), s.push(t, s.registry, next)
	s.until(t, s.store, old, has("v1.37.0"))
	s.until(t, s.store, "", has("v1.36.0"))
	s.stop()
	s.registry.Lie(layerOf(t, next, 3))
	again := s.start(t, s.store.Dir)
	if d, problem := again.Want(wanted, s.access); d != nil || problem == nil ||
		problem.Reason != contract.ReasonPayloadImageNotPulled {
		t.Errorf("it takes %s, %v", version(d), problem)
	}
	s.until(t, again, wanted, fails(contract.ReasonPayloadImageNotPulled, "none", "pulling blob"))
	blobs, err := again.Select(opened(t, dir).Manifest().Blobs())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blobs {
		r, err := b.Open()
		if err != nil {
			t.Fatalf("what nodes have can't be fetched: %v", err)
		}
		_ = r.Close()
	}
	s.registry.Lie("")
	s.until(t, again, wanted, has("v1.38.0"))
}

// A payload that shares blobs with the one before, or with the operator's own, is pulled without them.
func TestA61_OnlyBlobsThatAreNotThereArePulled(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	dir := t.TempDir()
	b, err := payload.NewBuilder(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range opened(t, s.embedded).Manifest().Files {
		content, err := os.ReadFile(filepath.Join(s.embedded, "sha256", f.Digest))
		if err != nil {
			t.Fatal(err)
		}
		if f.Name == payload.NameKubelet {
			content = append(content, "another"...)
		}
		if _, err = b.Add(f.Name, f.Version, f.Source, bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = b.Finish("mixed"); err != nil {
		t.Fatal(err)
	}
	s.until(t, s.store, s.push(t, s.registry, registry.Payload(t, dir)), has("mixed"))
	if blobs := blobsAsked(s.registry); blobs != 2 {
		t.Errorf("%d blobs are pulled instead of payload.json and kubelet", blobs)
	}
}

func blobsAsked(r *registry.Registry) (n int) {
	for _, p := range r.Asked() {
		if strings.Contains(p, "/blobs/") {
			n++
		}
	}
	return n
}

func TestA61_APullThatWasKilledGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	dir := standins(t, "v1.37.0")
	whole := registry.Payload(t, dir)
	wanted := s.push(t, s.registry, whole)
	layers, err := whole.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[8].Digest()
	if err != nil {
		t.Fatal(err)
	}
	s.registry.Lie(digest.String())
	s.until(t, s.store, wanted, fails(contract.ReasonPayloadImageNotPulled, "none", s.registry.Host, "pulling blob"))
	s.stop()
	// what a process that was killed leaves
	half := filepath.Join(blobDir(s.store.Dir), ".new-123")
	if err = os.WriteFile(half, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.registry.Lie("")
	s.registry.Asked()
	s.until(t, s.start(t, s.store.Dir), wanted, has("v1.37.0"))
	// payload.json, and the seventh blob and those behind it
	if blobs := blobsAsked(s.registry); blobs != 1+len(layers)-8 {
		t.Errorf("%d blobs of %d are pulled", blobs, len(layers))
	}
	if _, err = os.Stat(half); err == nil {
		t.Error("what was left of the first process is still there")
	}
}

func TestA61_ARegistryThatFailsIsToldAndTheOldPayloadStays(t *testing.T) {
	t.Parallel()
	for why, test := range map[string]struct {
		// spoil makes the registry fail, and mend ends that.
		spoil, mend func(t *testing.T, s *setting, i v1.Image)
		says        string
	}{
		"wrong bytes": {
			func(t *testing.T, s *setting, i v1.Image) { s.registry.Lie(layerOf(t, i, 3)) },
			func(_ *testing.T, s *setting, _ v1.Image) { s.registry.Lie("") }, "blob",
		},
		"a wrong payload.json": {
			func(t *testing.T, s *setting, i v1.Image) { s.registry.Lie(layerOf(t, i, 0)) },
			func(_ *testing.T, s *setting, _ v1.Image) { s.registry.Lie("") }, "payload.json",
		},
		"needs credentials": {
			func(_ *testing.T, s *setting, _ v1.Image) { s.registry.Lock("user:secret") },
			func(t *testing.T, s *setting, _ v1.Image) {
				s.access.Secret = secretFor(t, s.registry.Host, "user", "secret")
			},
			"refuses the credentials",
		},
		"wrong credentials": {
			func(t *testing.T, s *setting, _ v1.Image) {
				s.registry.Lock("user:secret")
				s.access.Secret = secretFor(t, s.registry.Host, "user", "guessed")
			},
			func(t *testing.T, s *setting, _ v1.Image) {
				s.access.Secret = secretFor(t, s.registry.Host, "user", "secret")
			},
			"refuses the credentials",
		},
		"nobody listens": {
			func(_ *testing.T, s *setting, _ v1.Image) { s.registry.Close() },
			func(t *testing.T, s *setting, _ v1.Image) { s.registry.Resume(t) }, "refused",
		},
		"a foreign CA": {
			func(_ *testing.T, s *setting, _ v1.Image) { s.access.CA = nil },
			func(_ *testing.T, s *setting, _ v1.Image) { s.access.CA = s.ca.PEM }, "certificate",
		},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			s := newSetting(t)
			i := registry.Payload(t, standins(t, "v1.37.0"))
			wanted := s.push(t, s.registry, i)
			s.until(t, s.store, "", has("v1.36.0"))
			test.spoil(t, s, i)
			problem := s.until(t, s.store, wanted, fails(contract.ReasonPayloadImageNotPulled, "v1.36.0", s.registry.Host, test.says))
			if strings.Contains(problem.Detail, "secret") || strings.Contains(problem.Detail, "guessed") {
				t.Errorf("it tells a secret: %s", problem.Detail)
			}
			test.mend(t, s, i)
			s.until(t, s.store, wanted, has("v1.37.0"))
		})
	}
}

// An operator that starts while the registry is down has no payload at all: it says so, with what is to be done,
// and goes on by itself.
func TestA61_ARegistryThatIsDownAtTheStartIsToldAndWaitedFor(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	wanted := s.push(t, s.registry, registry.Payload(t, standins(t, "v1.37.0")))
	s.registry.Close()
	problem := s.until(t, s.store, wanted,
		fails(contract.ReasonPayloadImageNotPulled, "none", s.registry.Host, "connection refused"))
	if !strings.Contains(problem.Reason.Fix(), "the operator's pod must reach it") {
		t.Errorf("the fix is %q", problem.Reason.Fix())
	}
	s.stop()
	again := s.start(t, s.store.Dir)
	s.until(t, again, wanted, fails(contract.ReasonPayloadImageNotPulled, "none", "connection refused"))
	s.registry.Resume(t)
	s.until(t, again, wanted, has("v1.37.0"))
}

// A registry that is down is not asked ever faster, nor ever more seldom.
func TestA61_PullsThatFailAreTriedAgainWithBackoff(t *testing.T) {
	t.Parallel()
	store, err := New(t.Context(), Options{Dir: t.TempDir(), Embedded: opened(t, standins(t, "v1.36.0"))})
	if err != nil {
		t.Fatal(err)
	}
	retry, before := store.retry, time.Duration(0)
	for n := range 30 {
		wait := retry.Step()
		if wait < firstRetry || wait > lastRetry*12/10 || n < 4 && wait < before*3/2 || n > 5 && wait < lastRetry {
			t.Errorf("pause %d is %s, after %s", n, wait, before)
		}
		before = wait
	}
}

func layerOf(t *testing.T, i v1.Image, n int) string {
	t.Helper()
	layers, err := i.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[n].Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func secretFor(t *testing.T, host, user, password string) mirror.PullSecret {
	t.Helper()
	secret, err := mirror.ParsePullSecret([]byte(`{"auths":{"` + host + `":{"username":"` + user + `","password":"` + password + `"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestA61_AMirrorIsUsedAndTheSourceWhereItHasNothing(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	down := registry.Start(t, s.ca)
	down.Close()
	local := s.push(t, s.registry, registry.Payload(t, standins(t, "v1.37.0")))
	wanted := "registry.example.com/windows/payload@" + digestOf(local)
	rules, err := mirror.NewRules([]contract.MirrorRule{{Source: "registry.example.com/windows/payload",
		Mirrors: []string{down.Host + "/" + repository, s.registry.Host + "/" + repository}, Kind: contract.PullByDigest,
		NeverContactSource: true}})
	if err != nil {
		t.Fatal(err)
	}
	s.access.Rules = rules
	s.until(t, s.store, wanted, has("v1.37.0"))
}

func TestAnImageThatIsNoPayloadIsRefused(t *testing.T) {
	t.Parallel()
	good := standins(t, "v1.37.0")
	text, err := os.ReadFile(filepath.Join(good, payload.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := payload.ParseManifest(text)
	if err != nil {
		t.Fatal(err)
	}
	tooFew := strconv.Itoa(len(manifest.Files)) + " blobs and 0 layers"
	lacking := []byte(`{"version":"x","files":[]}`)
	for why, test := range map[string]struct {
		layers []v1.Layer
		says   string
	}{
		"no layers":              {nil, "no layers"},
		"something else":         {[]v1.Layer{registry.PayloadLayer(t, "etc/passwd", []byte("x"))}, "not what make image makes"},
		"no JSON":                {[]v1.Layer{registry.PayloadLayer(t, payload.ManifestName, []byte("x"))}, "decoding"},
		"nothing to join with":   {[]v1.Layer{registry.PayloadLayer(t, payload.ManifestName, lacking)}, "lacks"},
		"too few layers":         {[]v1.Layer{registry.PayloadLayer(t, payload.ManifestName, text)}, tooFew},
		"a file outside":         {[]v1.Layer{registry.PayloadLayer(t, "../payload.json", text)}, "not what make image makes"},
		"a manifest without end": {[]v1.Layer{registry.PayloadLayer(t, payload.ManifestName, make([]byte, maxManifest+1))}, "not what make image makes"},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			s := newSetting(t)
			wanted := s.push(t, s.registry, registry.OfLayers(t, test.layers...))
			s.until(t, s.store, "", has("v1.36.0"))
			s.until(t, s.store, wanted, fails(contract.ReasonPayloadImageInvalid, "v1.36.0", test.says))
		})
	}
	t.Run("blobs that are not what they are called", func(t *testing.T) {
		t.Parallel()
		s := newSetting(t)
		layers := []v1.Layer{registry.PayloadLayer(t, payload.ManifestName, text)}
		for _, b := range opened(t, good).Manifest().Blobs() {
			layers = append(layers, registry.PayloadLayer(t, "sha256/"+b.Digest, make([]byte, b.Size)))
		}
		wanted := s.push(t, s.registry, registry.OfLayers(t, layers...))
		s.until(t, s.store, wanted, fails(contract.ReasonPayloadImageInvalid, "none", "its content has digest"))
	})
	t.Run("more than the limit", func(t *testing.T) {
		t.Parallel()
		s := newSetting(t)
		wanted := s.push(t, s.registry, registry.Payload(t, good))
		s.store.Limit = 100
		s.until(t, s.store, wanted, fails(contract.ReasonPayloadImageInvalid, "none", "larger than 100 bytes"))
	})
	for _, bad := range []string{"quay.io/a/b:latest", "quay.io/a/b@sha256:12", "x", "a b@sha256:" + strings.Repeat("a", 64)} {
		s := newSetting(t)
		s.until(t, s.store, bad, fails(contract.ReasonPayloadImageInvalid, "none"))
	}
}

func TestA61_ARegistryThatNeverEndsIsLeft(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	var asked atomic.Bool
	slow := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/" {
			return
		}
		asked.Store(true)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(slow.Close)
	s.access.CA = pemOf(slow)
	s.store.answerTime = 2 * time.Second
	wanted := strings.TrimPrefix(slow.URL, "https://") + "/a/b@sha256:" + strings.Repeat("a", 64)
	late := fails(contract.ReasonPayloadImageNotPulled, "none", "too long")
	// on a busy machine a try may end before it has asked
	s.until(t, s.store, wanted, func(d *payload.Dir, p *contract.Problem) bool { return late(d, p) && asked.Load() })
}

func TestA61_ARegistryWhoseHeadersNeverEndIsLeft(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	long := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 100_000))
	}))
	t.Cleanup(long.Close)
	s.access.CA = pemOf(long)
	wanted := strings.TrimPrefix(long.URL, "https://") + "/a/b@sha256:" + strings.Repeat("a", 64)
	s.until(t, s.store, wanted, fails(contract.ReasonPayloadImageNotPulled, "none", "response headers exceeded"))
}

func TestADamagedDiskIsPulledAgain(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	dir := standins(t, "v1.37.0")
	wanted := s.push(t, s.registry, registry.Payload(t, dir))
	s.until(t, s.store, wanted, has("v1.37.0"))
	for _, b := range opened(t, dir).Manifest().Blobs()[:2] {
		if err := os.WriteFile(filepath.Join(blobDir(s.store.Dir), b.Digest), make([]byte, b.Size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again := s.start(t, s.store.Dir)
	s.until(t, again, wanted, has("v1.37.0"))
	if err := again.current.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheDiskHoldsTwoPayloadsAtMost(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	for _, v := range []string{"v1.37.0", "v1.37.1", "v1.37.2", "v1.37.3"} {
		s.until(t, s.store, s.push(t, s.registry, registry.Payload(t, standins(t, v))), has(v))
	}
	blobs, err := os.ReadDir(blobDir(s.store.Dir))
	if err != nil || len(blobs) > 2*len(payload.Parts()) {
		t.Errorf("%d blobs are kept, %v", len(blobs), err)
	}
	manifests, err := filepath.Glob(filepath.Join(s.store.Dir, "*.json"))
	if err != nil || len(manifests) > 2 {
		t.Errorf("manifests are kept: %v, %v", manifests, err)
	}
}
