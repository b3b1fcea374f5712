package resolver_test

import (
	"net/http"
	"testing"
)

// pulls makes all requests of a pull by containerd: the reference with HEAD, then the content by digest, parents
// before children.
func (g *rig) pulls(t *testing.T, m image, reference string) bool {
	t.Helper()
	head := g.ask(t, http.MethodHead, source, "a/manifests/"+reference)
	if head.status != http.StatusOK || head.header.Get("Docker-Content-Digest") != digestOf(m.index) {
		return false
	}
	for _, one := range []struct {
		path    string
		content []byte
	}{{"manifests", m.index}, {"manifests", m.manifest}, {"blobs", m.config}, {"blobs", m.layer}} {
		if a := g.ask(t, http.MethodGet, source, "a/"+one.path+"/"+digestOf(one.content)); !a.isRight(one.content) {
			t.Logf("%s: %v", one.path, a)
			return false
		}
	}
	return true
}

func TestEachKindOfPullHasItsOwnMirrors(t *testing.T) {
	t.Parallel()
	m := newImage(1, 100_000)
	for name, reference := range map[string]string{"by tag": "latest", "by digest": digestOf(m.index)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			byDigest, byTag := newUpstream(t, m), newUpstream(t, m)
			g := newRig(t, calm(), config(t, source+" digest "+byDigest.host+"/d never",
				source+" tag "+byTag.host+"/t"))
			if !g.pulls(t, m, reference) {
				t.Fatal("the pull failed")
			}
			want, other := byTag, byDigest
			if reference != "latest" {
				want, other = byDigest, byTag
			}
			if want.asked("/a/") != 5 || other.asked("/a/") != 0 {
				t.Errorf("the right mirror was asked %d times, the wrong one %d", want.asked("/a/"), other.asked("/a/"))
			}
		})
	}
}

func TestAPullByTagStaysOneAlthoughContainerdGoesOnByDigest(t *testing.T) {
	t.Parallel()
	m := newImage(1, 100_000)
	only := newUpstream(t, m)
	g := newRig(t, calm(), config(t, source+" tag "+only.host+"/t never"))
	if !g.pulls(t, m, "latest") {
		t.Fatal("the pull failed")
	}
	// A pull of the same image by digest must fail, because no rule has a mirror for it.
	if a := g.ask(t, http.MethodHead, source, "a/manifests/"+digestOf(m.index)); a.status != http.StatusForbidden {
		t.Error(a)
	}
	if !g.pulls(t, m, "latest") {
		t.Fatal("the second pull failed")
	}
}

// containerd resolves a tag, and then requests the digest. In between, another client pulls the digest itself, which
// is refused. This must not break the first pull.
func TestA22_ARefusedPullByDigestBeforeAnImageHasComeLeavesThePullByTagAlone(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	only := newUpstream(t, m)
	g := newRig(t, calm(), config(t, source+" tag "+only.host+"/t never"))
	if a := g.ask(t, http.MethodHead, source, "a/manifests/latest"); a.status != http.StatusOK {
		t.Fatal(a)
	}
	if a := g.ask(t, http.MethodHead, source, "a/manifests/"+digestOf(m.index)); a.status != http.StatusForbidden {
		t.Error(a)
	}
	if a := g.ask(t, http.MethodGet, source, "a/manifests/"+digestOf(m.index)); !a.isRight(m.index) {
		t.Error("the pull by tag was broken:", a)
	}
}

func TestALayerOfAnUnknownPullIsLookedForInBothKindsOfMirrors(t *testing.T) {
	t.Parallel()
	m := newImage(1, 100_000)
	byDigest, byTag := newUpstream(t), newUpstream(t, m)
	g := newRig(t, calm(), config(t, source+" digest "+byDigest.host+"/d never", source+" tag "+byTag.host+"/t"))
	if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
		t.Fatal(a)
	}
	if byDigest.asked("/d/a/blobs/") != 1 {
		t.Error("the mirror for digests was not asked first")
	}
}
