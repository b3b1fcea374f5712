package e2e_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	nodemirror "github.com/windows-nodes/wmco/internal/daemon/mirror"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/registry"
)

// Mirrors are added, changed and removed. Every pull of this test goes from the host's hosts.toml through the resolver
// in that host's daemon to a real registry, over TLS.
func TestA22_MirrorsAreFollowedByEveryNode(t *testing.T) {
	c := dayTwo(t)
	before := pids(t, c.hosts...)
	ca := registry.NewCA(t, "registries")
	source, copies, dead := registry.Start(t, ca), registry.Start(t, ca), registry.Start(t, ca)
	dead.Close()
	mirrored, only := registry.NewImage(t), registry.NewImage(t)
	copies.Push(t, mirrored, "copies/team/app", "1")
	source.Push(t, only, "team/public", "1")
	c.trustRegistries(t, ca, source, copies)
	from := func(d *registry.Registry, reference string) func(h *fleet.Host) error {
		return func(h *fleet.Host) error {
			source.Asked()
			copies.Asked()
			err := pull(t.Context(), h, source.Host, "team/app", reference)
			if err == nil && len(d.Asked()) == 0 {
				err = errors.New("the image came from another registry")
			}
			return err
		}
	}

	digests := &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "day2"},
		Spec: configv1.ImageDigestMirrorSetSpec{
			ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: source.Host + "/team",
				Mirrors: []configv1.ImageMirror{configv1.ImageMirror(copies.Host + "/copies/team")}}},
		}}
	tags := &configv1.ImageTagMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "day2"},
		Spec: configv1.ImageTagMirrorSetSpec{
			ImageTagMirrors: []configv1.ImageTagMirrors{{Source: source.Host + "/team",
				Mirrors: []configv1.ImageMirror{configv1.ImageMirror(copies.Host + "/copies/team")}}},
		}}
	c.put(t, digests)
	t.Run("created, for digests", func(t *testing.T) {
		c.everywhere(t, "a pull from the mirror", from(copies, mirrored.Digest()))
		for _, h := range c.hosts {
			if err := from(copies, "1")(h); err == nil {
				t.Errorf("%s pulled by tag from a mirror that is only for digests", h.Name)
			}
			// the mirror lacks this image, so the pull must fall back to the source
			must(t, pull(t.Context(), h, source.Host, "team/public", only.Digest()))
		}
	})
	c.await(t, "an event to report that the mirror lacks an image",
		func(ctx context.Context) (bool, string, error) {
			return c.told(ctx, nodemirror.ReasonFallback, copies.Host)
		})
	c.put(t, tags)
	t.Run("created, for tags", func(t *testing.T) {
		c.everywhere(t, "a pull by tag from the mirror", from(copies, "1"))
	})
	t.Run("changed: a dead mirror comes first, and the source is forbidden", func(t *testing.T) {
		edit(t, c, digests, func(o *configv1.ImageDigestMirrorSet) {
			rule := &o.Spec.ImageDigestMirrors[0]
			rule.Mirrors = append([]configv1.ImageMirror{configv1.ImageMirror(dead.Host + "/x")}, rule.Mirrors...)
			rule.MirrorSourcePolicy = configv1.NeverContactSource
		})
		c.everywhere(t, "the nodes not to contact the source", func(h *fleet.Host) error {
			source.Asked()
			if err := pull(t.Context(), h, source.Host, "team/public", only.Digest()); err == nil ||
				len(source.Asked()) > 0 {
				return fmt.Errorf("the daemon contacted the source: %w", err)
			}
			return nil
		})
		for _, h := range c.hosts {
			must(t, from(copies, mirrored.Digest())(h))
		}
		c.await(t, "the status to report it to the administrator", func(ctx context.Context) (bool, string, error) {
			return c.told(ctx, nodemirror.ReasonUnavailable, dead.Host)
		})
		c.everywhere(t, "the pull to be counted", func(h *fleet.Host) error {
			content, err := winos.ReadFile(h.Machine.Host().Files, contract.PathMetrics)
			skipped := regexp.MustCompile(`wicd_resolver_skipped_total\{reason="\w+",registry="` + dead.Host + `"\}`)
			if err == nil && !skipped.Match(content) {
				err = fmt.Errorf("the counters of pulls are wrong: %s", content)
			}
			return err
		})
	})
	t.Run("deleted", func(t *testing.T) {
		c.take(t, digests)
		c.take(t, tags)
		c.everywhere(t, "a pull from the source only", func(h *fleet.Host) error {
			copies.Asked()
			err := pull(t.Context(), h, source.Host, "team/public", only.Digest())
			if err == nil && (pull(t.Context(), h, source.Host, "team/app", mirrored.Digest()) == nil ||
				len(copies.Asked()) > 0) {
				err = errors.New("the daemon still contacts the mirror")
			}
			return err
		})
	})
	c.settled(t)
	undisrupted(t, before, c.hosts...)
}

func TestA22A24A25_AMirrorAProxyAndACAReachNodesTogether(t *testing.T) {
	c := dayTwo(t)
	settingsReach(t, c)
}

func TestA23_TheNextPullUsesTheChangedPullSecret(t *testing.T) { pullSecretChanges(t, dayTwo(t)) }

// pullSecretChanges pulls an image with the credentials of the pull secret. Then the registry's password and the pull
// secret change. The next pull must use the new password.
func pullSecretChanges(t *testing.T, c *crew) {
	t.Helper()
	before := pids(t, c.hosts...)
	ca := registry.NewCA(t, "registries")
	private := registry.Start(t, ca)
	image := registry.NewImage(t)
	private.Push(t, image, "team/app", "1")
	private.Lock("robot:first")
	login := func(login string) []byte {
		return fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, private.Host+"/team",
			base64.StdEncoding.EncodeToString([]byte(login)))
	}
	c.declare(t, c, declared{signer: ca, registries: []*registry.Registry{private}, logins: login("robot:first")})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.pullSecret.Namespace,
		Name: c.pullSecret.Name}}
	logIn := func(content []byte) {
		edit(t, c, secret, func(o *corev1.Secret) {
			o.Data = map[string][]byte{corev1.DockerConfigJsonKey: content}
		})
	}
	pulls := func(h *fleet.Host) error { return pull(t.Context(), h, private.Host, "team/app", image.Digest()) }
	c.everywhere(t, "a pull with the first credentials", pulls)
	private.Lock("robot:second")
	for _, h := range c.hosts {
		if pulls(h) == nil {
			t.Errorf("%s pulled with the old password", h.Name)
		}
	}
	logIn(login("robot:second"))
	c.everywhere(t, "a pull with the next credentials", pulls)
	c.settled(t)
	undisrupted(t, before, c.hosts...)
	c.secrets(t, "robot:", base64.StdEncoding.EncodeToString([]byte("robot:second")))
	logIn([]byte(`{"auths":{}}`))
	c.everywhere(t, "pulls without credentials to be refused", func(h *fleet.Host) error {
		if err := pulls(h); err == nil {
			return errors.New("the pull succeeded, but it must fail")
		}
		return nil
	})
}

// told reports whether every host's Node has an event with a reason and a text.
func (c *crew) told(ctx context.Context, reason, named string) (bool, string, error) {
	events := &corev1.EventList{}
	if err := c.Client.List(ctx, events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return false, "", err
	}
	for _, h := range c.hosts {
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == reason && e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == h.Name &&
				strings.Contains(e.Message, named)
		}) {
			said := "nothing of this is said of " + h.Name
			for _, e := range events.Items {
				if e.InvolvedObject.Name == h.Name {
					said += "\n" + e.Reason + " " + e.Message
				}
			}
			return false, said, nil
		}
	}
	return true, "", nil
}

// The registry settings of the Image object also apply to Windows nodes.
func TestA22_RegistriesThatAreBlockedAllowedOrInsecure(t *testing.T) {
	c := dayTwo(t)
	before := pids(t, c.hosts...)
	ca := registry.NewCA(t, "nobody trusts it")
	strange, other := registry.Start(t, ca), registry.Start(t, ca)
	app := registry.NewImage(t)
	strange.Push(t, app, "team/app", "1")
	other.Push(t, app, "team/app", "1")
	image := &configv1.Image{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	lend(t, c, image, func(o *configv1.Image) func(*configv1.Image) {
		o.Spec.RegistrySources.InsecureRegistries = []string{strange.Host}
		return func(o *configv1.Image) { o.Spec.RegistrySources = configv1.RegistrySources{} }
	})
	pulls := func(h *fleet.Host) error { return pull(t.Context(), h, strange.Host, "team/app", app.Digest()) }
	refused := func(d *registry.Registry) func(h *fleet.Host) error {
		return func(h *fleet.Host) error {
			d.Asked()
			err := pull(t.Context(), h, d.Host, "team/app", app.Digest())
			if err == nil || len(d.Asked()) > 0 || !strings.Contains(err.Error(), "of the Image object cluster") {
				return fmt.Errorf("the daemon contacted the registry, or the error doesn't name the reason: %w", err)
			}
			return nil
		}
	}
	c.everywhere(t, "a pull from an insecure registry", pulls)
	edit(t, c, image, func(o *configv1.Image) {
		o.Spec.RegistrySources.BlockedRegistries = []string{strange.Host +
			"/team"}
	})
	c.everywhere(t, "the nodes not to contact a blocked registry", refused(strange))
	c.await(t, "the status to report it to the administrator", func(ctx context.Context) (bool, string, error) {
		return c.told(ctx, nodemirror.ReasonRefused, strange.Host)
	})
	edit(t, c, image, func(o *configv1.Image) {
		o.Spec.RegistrySources.BlockedRegistries, o.Spec.RegistrySources.AllowedRegistries = nil,
			[]string{strange.Host + "/team", other.Host + "/else"}
	})
	c.everywhere(t, "a pull from the registry, which is allowed again", pulls)
	c.everywhere(t, "the nodes not to contact other registries", refused(other))
	for _, h := range c.hosts {
		if content, err := hostsFile(h); err != nil || strings.Contains(content, "https://") {
			t.Errorf("%s: while the resolver is down, containerd must not pull without it: %s, %v", h.Name, content,
				err)
		}
	}
	c.settled(t)
	undisrupted(t, before, c.hosts...)
}

// trustRegistries makes the nodes trust the CA of registries.
func (c *crew) trustRegistries(t *testing.T, signer *registry.CA, registries ...*registry.Registry) {
	t.Helper()
	cas := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace,
		GenerateName: "registries-"}, Data: map[string]string{}}
	for _, d := range registries {
		cas.Data[strings.Replace(d.Host, ":", "..", 1)] = string(signer.PEM)
	}
	c.put(t, cas)
	image := &configv1.Image{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	lend(t, c, image, func(o *configv1.Image) func(*configv1.Image) {
		o.Spec.AdditionalTrustedCA.Name = cas.Name
		return func(o *configv1.Image) { o.Spec.AdditionalTrustedCA.Name = "" }
	})
	t.Cleanup(func() {
		for _, h := range c.hosts {
			if _, err := hostsFile(h); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	})
}
