package publish

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// PayloadSource is where daemons download blobs of the payload while their nodes are in service.
type PayloadSource struct {
	// URLs are the URLs of the payload servers, without a path. Without URLs, daemons can't download anything.
	URLs []string
	// CA contains the certificates of the servers, as PEM.
	CA []byte
}

// keepPayloadSource maintains the ConfigMap with the addresses of the payload servers, for daemons. It is not part of a
// revision, because the payload server gets a new certificate whenever the operator starts. A daemon that doesn't trust
// this certificate reads the ConfigMap again.
func (p *publisher) keepPayloadSource(ctx context.Context) error {
	return ensure(ctx, p, contract.PayloadSourceConfigMap, func(c *corev1.ConfigMap) {
		markOurs(&c.ObjectMeta)
		c.Data, c.BinaryData = map[string]string{
			contract.PayloadSourceURLs: strings.Join(p.PayloadSource.URLs, "\n"),
			contract.PayloadSourceCA:   string(p.PayloadSource.CA)}, nil
	})
}

// keepTrustedCA maintains the ConfigMap into which the cluster writes the CAs of its proxy. The ConfigMap must exist
// before the cluster has a proxy. Otherwise, nodes would first get a revision with the proxy but without its CAs.
func (p *publisher) keepTrustedCA(ctx context.Context, injects bool) error {
	if !injects {
		return nil
	}
	return ensure(ctx, p, contract.TrustedCAConfigMap, func(c *corev1.ConfigMap) {
		metav1.SetMetaDataLabel(&c.ObjectMeta, contract.InjectTrustedCALabel, "true")
		if c.ResourceVersion == "" {
			markOurs(&c.ObjectMeta)
		}
	})
}

// keepRevision maintains the objects of a revision in this order: Secret, ConfigMap, Role. So a daemon can read all
// objects before the revision is written to its Node.
func (p *publisher) keepRevision(ctx context.Context, content contract.Latest) error {
	name, immutable := contract.ServicesConfigMapPrefix+content.Revision, true
	if err := ensure(ctx, p, name, func(s *corev1.Secret) {
		fillSecret(s, map[string][]byte{contract.ConfidentialField: content.Confidential})
		s.Immutable = &immutable
	}); err != nil {
		return err
	}
	if err := ensure(ctx, p, name, func(c *corev1.ConfigMap) {
		markOurs(&c.ObjectMeta)
		c.Immutable, c.Data, c.BinaryData = &immutable, content.Manifest, nil
	}); err != nil {
		return err
	}
	return p.keepRole(ctx, name)
}

// keepRole allows daemons to read the published manifests and their Secrets by name. The operator may grant these
// rights because it has them itself in its namespace. An admission policy prevents the operator from granting more.
func (p *publisher) keepRole(ctx context.Context, current string) error {
	configMaps, secrets := []string{current}, []string{current}
	all, err := revisions(ctx, p.client, p.Namespace)
	if err != nil {
		return err
	}
	for name, r := range all {
		if r.isGenuine() {
			configMaps = append(configMaps, name)
		}
		if r.isComplete() {
			secrets = append(secrets, name)
		}
	}
	rule := func(resource string, names []string, verbs ...string) rbacv1.PolicyRule {
		slices.Sort(names)
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource},
			ResourceNames: slices.Compact(names), Verbs: verbs}
	}
	// Daemons watch only the Secret of the latest revision. For other objects, the right to list is enough, because
	// they exist before a Node names their revision.
	rules := []rbacv1.PolicyRule{rule("configmaps", configMaps, "list"), rule("secrets", secrets, "list"),
		rule("secrets", []string{contract.LatestSecret}, "list", "watch"),
		rule("configmaps", []string{contract.PayloadSourceConfigMap}, "list")}
	return ensure(ctx, p, contract.ServicesReaderRole, func(role *rbacv1.Role) {
		markOurs(&role.ObjectMeta)
		role.Rules = rules
	})
}

// keepLatest maintains the Secret with the current revision, which daemons watch. The Secret is only an optimisation:
// if it lacks data, daemons read the objects of the revision.
func (p *publisher) keepLatest(ctx context.Context, content contract.Latest) error {
	data, err := content.Data()
	if err != nil {
		return err
	}
	return ensure(ctx, p, contract.LatestSecret, func(s *corev1.Secret) { fillSecret(s, data) })
}

func fillSecret(s *corev1.Secret, data map[string][]byte) {
	markOurs(&s.ObjectMeta)
	s.Type, s.Data = corev1.SecretTypeOpaque, data
}
