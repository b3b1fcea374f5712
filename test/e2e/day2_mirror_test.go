package e2e_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// Every pull here goes from a host's hosts.toml through the resolver in that host's daemon to a real registry, over TLS.
func TestA22_MirrorsAreFollowedByEveryNode(t *testing.T) {
	c := dayTwo(t)
	before := pids(t, c.hosts...)
	ca, pem := newCA(t, "registries")
	source, copies, dead := newDepot(t, ca), newDepot(t, ca), newDepot(t, ca)
	dead.server.Close()
	mirrored, only := newImage(), newImage()
	copies.push(t, mirrored, "copies/team/app", "1")
	source.push(t, only, "team/public", "1")
	c.trustRegistries(t, pem, source, copies)
	from := func(d *depot, reference string) func(h *fleet.Host) error {
		return func(h *fleet.Host) error {
			source.asked()
			copies.asked()
			err := pull(t.Context(), h, source.host, "team/app", reference)
			if err == nil && d.asked() == 0 {
				err = errors.New("it came from elsewhere")
			}
			return err
		}
	}

	digests := &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "day2"}, Spec: configv1.ImageDigestMirrorSetSpec{
		ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: source.host + "/team", Mirrors: []configv1.ImageMirror{configv1.ImageMirror(copies.host + "/copies/team")}}},
	}}
	tags := &configv1.ImageTagMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "day2"}, Spec: configv1.ImageTagMirrorSetSpec{
		ImageTagMirrors: []configv1.ImageTagMirrors{{Source: source.host + "/team", Mirrors: []configv1.ImageMirror{configv1.ImageMirror(copies.host + "/copies/team")}}},
	}}
	c.put(t, digests)
	t.Run("created, for digests", func(t *testing.T) {
		c.everywhere(t, "the mirror to be pulled from", from(copies, mirrored.digest()))
		for _, h := range c.hosts {
			if err := from(copies, "1")(h); err == nil {
				t.Errorf("%s pulled a tag from a mirror for digests", h.Name)
			}
			must(t, pull(t.Context(), h, source.host, "team/public", only.digest())) // the source has what the mirror lacks
		}
	})
	c.put(t, tags)
	t.Run("created, for tags", func(t *testing.T) {
		c.everywhere(t, "a tag to be pulled from the mirror", from(copies, "1"))
	})
	t.Run("changed: a dead mirror comes first, and the source is forbidden", func(t *testing.T) {
		edit(t, c, digests, func(o *configv1.ImageDigestMirrorSet) {
			rule := &o.Spec.ImageDigestMirrors[0]
			rule.Mirrors = append([]configv1.ImageMirror{configv1.ImageMirror(dead.host + "/x")}, rule.Mirrors...)
			rule.MirrorSourcePolicy = configv1.NeverContactSource
		})
		c.everywhere(t, "the source to be left alone", func(h *fleet.Host) error {
			source.asked()
			if err := pull(t.Context(), h, source.host, "team/public", only.digest()); err == nil || source.asked() > 0 {
				return fmt.Errorf("the source was asked: %w", err)
			}
			return nil
		})
		for _, h := range c.hosts {
			must(t, from(copies, mirrored.digest())(h))
		}
	})
	t.Run("deleted", func(t *testing.T) {
		c.take(t, digests)
		c.take(t, tags)
		c.everywhere(t, "the source to be pulled from, and nothing else", func(h *fleet.Host) error {
			copies.asked()
			err := pull(t.Context(), h, source.host, "team/public", only.digest())
			if err == nil && (pull(t.Context(), h, source.host, "team/app", mirrored.digest()) == nil || copies.asked() > 0) {
				err = errors.New("the mirror is still asked")
			}
			return err
		})
	})
	c.settled(t)
	undisturbed(t, before, c.hosts...)
}

func TestA23_TheNextPullUsesTheChangedPullSecret(t *testing.T) {
	c := dayTwo(t)
	before := pids(t, c.hosts...)
	ca, pem := newCA(t, "registries")
	private := newDepot(t, ca)
	image := newImage()
	private.push(t, image, "team/app", "1")
	private.lock("robot:first")
	c.trustRegistries(t, pem, private)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace, Name: contract.PullSecret}}
	login := func(login string) []byte {
		return fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, private.host+"/team", base64.StdEncoding.EncodeToString([]byte(login)))
	}
	lend(t, c, secret, func(o *corev1.Secret) func(*corev1.Secret) {
		old := o.Data
		o.Data = map[string][]byte{corev1.DockerConfigJsonKey: login("robot:first")}
		return func(o *corev1.Secret) { o.Data = old }
	})
	pulls := func(h *fleet.Host) error { return pull(t.Context(), h, private.host, "team/app", image.digest()) }
	c.everywhere(t, "a pull with the first credentials", pulls)
	private.lock("robot:second")
	for _, h := range c.hosts {
		if pulls(h) == nil {
			t.Errorf("%s pulled with credentials that are not right any more", h.Name)
		}
	}
	edit(t, c, secret, func(o *corev1.Secret) { o.Data = map[string][]byte{corev1.DockerConfigJsonKey: login("robot:second")} })
	c.everywhere(t, "a pull with the next credentials", pulls)
	c.settled(t)
	undisturbed(t, before, c.hosts...)
	told := c.said(t)
	for _, h := range c.hosts {
		walk(t, h, `C:\`, func(path string, restricted bool) {
			if !restricted || strings.HasPrefix(path, contract.DirLog) {
				told[h.Name+" "+path] = string(hostFile(t, h, path))
			}
		})
	}
	for place, text := range told {
		for _, secret := range []string{"robot:", base64.StdEncoding.EncodeToString([]byte("robot:second"))} {
			if strings.Contains(text, secret) {
				t.Errorf("the credentials stand in %s", place)
			}
		}
	}
	edit(t, c, secret, func(o *corev1.Secret) { o.Data = map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)} })
	c.everywhere(t, "pulls without credentials to be refused", func(h *fleet.Host) error {
		if err := pulls(h); err == nil {
			return errors.New("it was pulled")
		}
		return nil
	})
}

// trustRegistries lets the cluster's nodes trust registries.
func (c *crew) trustRegistries(t *testing.T, pem []byte, depots ...*depot) {
	t.Helper()
	authorities := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace, GenerateName: "registries-"}, Data: map[string]string{}}
	for _, d := range depots {
		authorities.Data[strings.Replace(d.host, ":", "..", 1)] = string(pem)
	}
	c.put(t, authorities)
	image := &configv1.Image{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	lend(t, c, image, func(o *configv1.Image) func(*configv1.Image) {
		o.Spec.AdditionalTrustedCA.Name = authorities.Name
		return func(o *configv1.Image) { o.Spec.AdditionalTrustedCA.Name = "" }
	})
	t.Cleanup(func() {
		for _, h := range c.hosts {
			if _, err := hostsFile(h, depots[0].host); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	})
}
