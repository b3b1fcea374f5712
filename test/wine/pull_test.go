//go:build linux

package wine_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/port"
	"github.com/windows-nodes/wmco/lab/registry"
)

// registries are the registries of these tests.
type registries struct {
	// source is the registry in image names. copies is a mirror. private is a mirror that needs credentials. corrupt is
	// a mirror that can send wrong content.
	source, copies, private, corrupt *registry.Registry
	// dead is the address of a mirror that does not exist.
	dead string
}

// The real containerd.exe must pull images through the daemon's resolver. The client passes the registry directory that
// containerd's configuration names for kubelet's pulls. The daemon writes this directory, and its resolver answers the
// requests that hosts.toml directs to it.
func TestA22_TheRealContainerdPullsThroughTheResolver(t *testing.T) {
	s := shared
	h := s.host(puller)
	ca := registry.NewCA(t, "registries")
	r := registries{source: nearby(t, h, ca), copies: nearby(t, h, ca), private: nearby(t, h, ca).Lock("robot:secret"),
		corrupt: nearby(t, h, ca), dead: deadHost(t)}
	mirrored, tagged := r.copies.Push(t, registry.NewImage(t), "copy/app", "1"),
		r.copies.Push(t, registry.NewImage(t), "copy/tagged", "v2")
	plain, guarded := r.source.Push(t, registry.NewImage(t), "team/plain", "1"),
		r.private.Push(t, registry.NewImage(t), "team/secret", "1")
	r.private.Push(t, registry.NewImage(t), "other/secret", "1")
	s.exports(t, h)
	s.useRegistries(t, r, string(ca.PEM))
	s.follows(t, h, r)

	t.Run("by digest from a mirror, past one that is dead", func(t *testing.T) {
		s.pulls(t, h, r.source.Host+"/team/app@"+mirrored.Digest(), mirrored)
		expect(t, r.copies, mirrored, "copy/app")
		if asked := r.source.Asked(); len(asked) > 0 {
			t.Errorf("the source received the requests %q, want none", asked)
		}
	})
	t.Run("by tag from a mirror", func(t *testing.T) {
		s.pulls(t, h, r.source.Host+"/team/tagged:v2", tagged)
		expect(t, r.copies, tagged, "copy/tagged")
	})
	t.Run("from a source whose name has a port", func(t *testing.T) {
		s.pulls(t, h, r.source.Host+"/team/plain:1", plain)
		expect(t, r.source, plain, "team/plain")
	})
	t.Run("with the cluster's credentials, of which containerd knows nothing", func(t *testing.T) {
		s.pulls(t, h, r.private.Host+"/team/secret:1", guarded)
		expect(t, r.private, guarded, "team/secret")
	})
	t.Run("as kubelet asks for it, up to unpacking", func(t *testing.T) {
		asked := r.copies.Push(t, registry.NewImage(t), "copy/app", "2")
		said, code := s.kubeletPulls(t, h, r.source.Host+"/team/app@"+asked.Digest())
		expect(t, r.copies, asked, "copy/app")
		if code == 0 || !strings.Contains(said, "failed to pull and unpack image") {
			t.Errorf("the pull ended with %d: %s", code, said)
		}
		t.Log(said)
	})
	t.Run("from another mirror, after one gave wrong bytes",
		func(t *testing.T) { s.pullsPastALie(t, h, r, "two", true) })
	t.Run("from the only mirror, once it gives the right bytes",
		func(t *testing.T) { s.pullsPastALie(t, h, r, "one", false) })
	t.Run("not where there are no credentials", func(t *testing.T) {
		out, code := s.pull(t, h, r.private.Host+"/other/secret:1")
		if asked := r.private.Asked(); code == 0 || len(asked) > 0 {
			t.Errorf("the pull ended with %d, and the registry served %q:\n%s", code, asked, out)
		}
	})
	t.Run("not what is nowhere", func(t *testing.T) {
		out, code := s.pull(t, h, r.source.Host+"/team/tagged:v3")
		if code == 0 || !strings.Contains(out, "not found") {
			t.Errorf("the pull ended with %d:\n%s", code, out)
		}
	})
	t.Run("and all of it is counted, for windows_exporter to serve", func(t *testing.T) { s.counted(t, h, r) })
}

// pull pulls an image with containerd on a host, and returns the client's output.
func (s *stage) pull(t *testing.T, h *fleet.Host, reference string) (said string, code int) {
	t.Helper()
	// With all platforms, containerd doesn't unpack the image. Unpacking fails under Wine.
	_, said, code = s.tryCtr(t, h, "images", "pull", "--all-platforms", "--hosts-dir", contract.DirRegistries,
		reference)
	return said, code
}

// pulls pulls an image, and checks that containerd has all its parts.
func (s *stage) pulls(t *testing.T, h *fleet.Host, reference string, i registry.Image) {
	t.Helper()
	out, code := s.pull(t, h, reference)
	if code != 0 {
		t.Fatalf("pulling %s ended with %d:\n%s", reference, code, out)
	}
	for _, content := range [][]byte{i.Manifest, i.Configuration, i.Layer} {
		if has := s.ctr(t, h, "content", "get", registry.Digest(content)); has != string(content) {
			t.Errorf("containerd has %d bytes of %s, want %d", len(has), registry.Digest(content), len(content))
		}
	}
	if names := s.ctr(t, h, "images", "list", "--quiet"); !slices.Contains(strings.Fields(names), reference) {
		t.Errorf("containerd's images are %q", names)
	}
}

// pullsPastALie makes a mirror send a layer with wrong content. The resolver ends the response before its last byte,
// and the pull fails. containerd must not keep the content for the next pull. The test pulls as a client of containerd
// does, and as kubelet does. If another is true, a second mirror always has the right content, so the next pull must
// get it there. If another is false, the first mirror sends the right content for the next pull.
func (s *stage) pullsPastALie(t *testing.T, h *fleet.Host, r registries, repository string, another bool) {
	t.Helper()
	for n, how := range []struct {
		by   string
		pull func(reference string) (said string, code int)
		well func(said string, code int) bool
	}{
		{"a client", func(reference string) (string, int) { return s.pull(t, h, reference) },
			func(_ string, code int) bool { return code == 0 }},
		// Under Wine, kubelet's pull fails when it unpacks the complete image.
		{"kubelet", func(reference string) (string, int) { return s.kubeletPulls(t, h, reference) },
			func(said string, _ int) bool {
				return strings.Contains(said, "failed to extract layer")
			}},
	} {
		i := r.corrupt.Push(t, registry.NewImage(t), "copy/"+repository, "1")
		r.copies.Push(t, i, "copy/two", "1")
		r.corrupt.Lie(registry.Digest(i.Layer))
		reference := r.source.Host + "/team/" + repository + "@" + i.Digest()
		if isAskedFirst := n == 0 || !another; isAskedFirst {
			if said, code := how.pull(reference); code == 0 || !strings.Contains(said, "unexpected EOF") {
				t.Errorf("a pull by %s got wrong content, and ended with %d: %s", how.by, code, said)
			}
			if !another {
				r.corrupt.Lie("")
			}
			s.dropped(t, h, i.Layer)
		}
		r.corrupt.Asked()
		r.copies.Asked()
		if said, code := how.pull(reference); !how.well(said, code) {
			t.Errorf("the next pull by %s ended with %d: %s", how.by, code, said)
		}
		brought := r.corrupt
		if another {
			brought = r.copies
		}
		if asked, path := brought.Asked(),
			"/v2/copy/"+repository+"/blobs/"+registry.Digest(i.Layer); !slices.Contains(asked, path) {
			t.Errorf("%s: the mirror with the right content received no request for %s, only %q", how.by, path, asked)
		}
	}
	r.corrupt.Lie("")
}

// dropped waits until containerd has no unfinished download of a blob. Wrong but complete content stays until
// containerd's next garbage collection, and an earlier pull would use it again without a request. Between two
// collections, containerd pauses for 49 times the duration of a collection. On a busy machine, this takes minutes.
// Therefore, dropped deletes a lease, which starts a collection at once.
func (s *stage) dropped(t *testing.T, h *fleet.Host, blob []byte) {
	t.Helper()
	s.await(t, "containerd on "+h.Name+" to drop what it could not use", func(context.Context) (bool, string, error) {
		s.ctr(t, h, "leases", "create", "--id", "collect")
		s.ctr(t, h, "leases", "delete", "--sync", "collect")
		unfinished := s.ctr(t, h, "content", "active")
		return !strings.Contains(unfinished, registry.Digest(blob)), unfinished, nil
	})
}

// nearby starts a registry that a host can reach.
func nearby(t *testing.T, h *fleet.Host, ca *registry.CA) *registry.Registry {
	t.Helper()
	r := registry.Start(t, ca)
	address, err := netip.ParseAddrPort(r.Host)
	if err != nil {
		t.Fatal(err)
	}
	if err = machine(h).Reach(address); err != nil {
		t.Fatal(err)
	}
	return r
}

// deadHost returns an address at which nothing listens, neither on this machine nor on a host.
func deadHost(t *testing.T) string {
	t.Helper()
	p, err := port.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p.Address()
}

// expect checks that a registry has served all parts of an image from one repository.
func expect(t *testing.T, d *registry.Registry, i registry.Image, repository string) {
	t.Helper()
	asked := strings.Join(d.Asked(), "\n")
	for _, blob := range [][]byte{i.Configuration, i.Layer} {
		if want := "/v2/" + repository + "/blobs/" + registry.Digest(blob); !strings.Contains(asked, want) {
			t.Errorf("the registry received no request for %s, only\n%s", want, asked)
		}
	}
	if !strings.Contains(asked, "/v2/"+repository+"/manifests/") {
		t.Errorf("the registry received no request for the manifest, only\n%s", asked)
	}
}

// useRegistries sets the cluster's registry settings. When the test ends, it restores them.
func (s *stage) useRegistries(t *testing.T, r registries, ca string) {
	t.Helper()
	cas := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace,
		Name: "registries"}, Data: map[string]string{}}
	for _, d := range []*registry.Registry{r.source, r.copies, r.private, r.corrupt} {
		cas.Data[strings.Replace(d.Host, ":", "..", 1)] = ca
	}
	mirrors := func(all ...string) (to []configv1.ImageMirror) {
		for _, one := range all {
			to = append(to, configv1.ImageMirror(one))
		}
		return to
	}
	digests := &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "digests"},
		Spec: configv1.ImageDigestMirrorSetSpec{
			ImageDigestMirrors: []configv1.ImageDigestMirrors{
				{Source: r.source.Host + "/team/app", Mirrors: mirrors(r.dead+"/x", r.copies.Host+"/copy/app")},
				{Source: r.source.Host + "/team/one", Mirrors: mirrors(r.corrupt.Host + "/copy/one")},
				{Source: r.source.Host + "/team/two",
					Mirrors: mirrors(r.corrupt.Host+"/copy/two", r.copies.Host+"/copy/two")},
			},
		}}
	tags := &configv1.ImageTagMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "tags"},
		Spec: configv1.ImageTagMirrorSetSpec{
			ImageTagMirrors: []configv1.ImageTagMirrors{{Source: r.source.Host + "/team/tagged",
				Mirrors: mirrors(r.copies.Host + "/copy/tagged")}},
		}}
	for _, object := range []client.Object{cas, digests, tags} {
		if err := s.everything.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.everything.Delete(context.WithoutCancel(t.Context()), object); err != nil {
				t.Error(err)
			}
		})
	}
	images := &configv1.Image{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	lend(t, s, images, func() func() {
		images.Spec.AdditionalTrustedCA.Name = cas.Name
		return func() { images.Spec.AdditionalTrustedCA.Name = "" }
	})
	login := fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, r.private.Host+"/team",
		base64.StdEncoding.EncodeToString([]byte("robot:secret")))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace,
		Name: contract.PullSecret}}
	lend(t, s, secret, func() func() {
		old := secret.Data
		secret.Data = map[string][]byte{corev1.DockerConfigJsonKey: login}
		return func() { secret.Data = old }
	})
}

// lend changes an object of the cluster until the test ends. edit returns a function that undoes the change.
func lend(t *testing.T, s *stage, object client.Object, edit func() (undo func())) {
	t.Helper()
	change := func(ctx context.Context, edit func()) error {
		if err := s.everything.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		edit()
		return s.everything.Update(ctx, object)
	}
	var undo func()
	if err := change(t.Context(), func() { undo = edit() }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := change(context.WithoutCancel(t.Context()), undo); err != nil {
			t.Error(err)
		}
	})
}

// follows waits until a host's manifest contains all registry settings of this test.
func (s *stage) follows(t *testing.T, h *fleet.Host, r registries) {
	t.Helper()
	s.awaitSecrets(t, h, "mirrors, CAs and credentials of registries", func(c contract.Confidential) bool {
		return len(c.Mirrors) == 4 && len(c.RegistryTrust) == 4 &&
			strings.Contains(string(c.PullSecret), r.private.Host)
	})
}

// awaitSecrets waits until the confidential part of a host's manifest fulfils a condition.
func (s *stage) awaitSecrets(t *testing.T, h *fleet.Host, what string, right func(c contract.Confidential) bool) {
	t.Helper()
	s.await(t, h.Name+" to hold "+what, func(ctx context.Context) (bool, string, error) {
		secret, version := &corev1.Secret{}, s.node(t, h).Annotations[contract.RevisionAnnotation]
		name := contract.ServicesConfigMapPrefix + version
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.OperatorNamespace, Name: name},
			secret); err != nil {
			return false, name, client.IgnoreNotFound(err)
		}
		c, err := contract.ParseConfidential(secret.Data[contract.ConfidentialField], s.manifestOf(t, version))
		return err == nil && right(c), fmt.Sprintf("%s has %d rules, %d CAs", name, len(c.Mirrors),
			len(c.RegistryTrust)), err
	})
}
