package publish

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
)

// revision contains the objects with the name of one revision. Each of them may be nil.
type revision struct {
	manifest *corev1.ConfigMap
	secret   *corev1.Secret
}

// isGenuine reports whether the manifest exists and its content matches its name. It doesn't parse the content, because
// a newer release may have written fields that this release doesn't know.
func (r revision) isGenuine() bool {
	return r.manifest != nil && len(r.manifest.BinaryData) == 0 &&
		contract.IsRevisionOfData(r.manifest.Name, r.manifest.Data)
}

// isComplete reports whether the manifest is genuine and the Secret has the confidential part that the manifest names.
func (r revision) isComplete() bool {
	data, ok := unpacked(r.secret)
	return ok && r.isGenuine() && contract.Digest(data) == r.manifest.Data[contract.KeyConfidential]
}

// unpacked returns the confidential part in a Secret. If the Secret contains anything else, the result is false.
func unpacked(s *corev1.Secret) ([]byte, bool) {
	if s == nil || len(s.Data) != 1 {
		return nil, false
	}
	data, err := contract.Unpack(s.Data[contract.ConfidentialField])
	return data, err == nil
}

// isRevisionName reports whether a text may be the name of a revision's objects, which ends with a digest. The
// ConfigMaps of OpenShift's existing operator don't match, because their names end with that operator's version.
func isRevisionName(name string) bool {
	return strings.HasPrefix(name, contract.ServicesConfigMapPrefix) &&
		regexp.MustCompile(`-[0-9a-f]{10}$`).MatchString(name)
}

func revisions(ctx context.Context, reader client.Reader, namespace string) (map[string]revision, error) {
	configMaps, secrets := &corev1.ConfigMapList{}, &corev1.SecretList{}
	if err := reader.List(ctx, configMaps, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing ConfigMaps: %w", err)
	}
	if err := reader.List(ctx, secrets, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing Secrets: %w", err)
	}
	all := map[string]revision{}
	for i := range configMaps.Items {
		if c := &configMaps.Items[i]; isRevisionName(c.Name) {
			all[c.Name] = revision{manifest: c}
		}
	}
	for i := range secrets.Items {
		if s := &secrets.Items[i]; isRevisionName(s.Name) {
			all[s.Name] = revision{manifest: all[s.Name].manifest, secret: s}
		}
	}
	return all, nil
}

// previous returns the revision that was published last, by this process or by an earlier one. It always has a salt.
// The earlier salt is used again, so that the same content has the same revision after a restart.
func (p *publisher) previous(ctx context.Context, config *v1alpha1.WindowsMachineConfig) (blueprint.Desired, error) {
	if last, _, ok := p.source.Published(); ok {
		return last, nil
	}
	status := config.Status
	if status.DesiredRevision == "" { // the object doesn't exist, or was created again
		remembered, err := cluster.Remembered(ctx, p.client, p.Namespace)
		if err != nil {
			return blueprint.Desired{}, err
		}
		status = remembered.Status
	}
	left, err := p.left(ctx, status.DesiredRevision)
	if err != nil {
		return blueprint.Desired{}, err
	}
	if accepted := status.Kubelet.AcceptedConfig; accepted != nil {
		left.KubeletFragment = accepted.Raw
	}
	if len(left.Confidential.Salt) == 0 {
		left.Confidential.Salt = make([]byte, contract.SaltSize)
		if _, err = rand.Read(left.Confidential.Salt); err != nil {
			return blueprint.Desired{}, fmt.Errorf("making a salt: %w", err)
		}
	}
	return left, nil
}

// The method `left` returns the revision that an earlier process published with this name, or else the newest revision.
// In the result, the lists of features that are off and of rejected settings are empty.
func (p *publisher) left(ctx context.Context, name string) (found blueprint.Desired, err error) {
	all, err := revisions(ctx, p.client, p.Namespace)
	if err != nil {
		return found, err
	}
	var complete []revision
	for _, r := range all {
		if r.isComplete() {
			complete = append(complete, r)
		}
	}
	slices.SortFunc(complete, func(a, b revision) int {
		return cmp.Or(b.secret.CreationTimestamp.Compare(a.secret.CreationTimestamp.Time),
			cmp.Compare(b.secret.Name, a.secret.Name))
	})
	for _, r := range complete {
		is := strings.TrimPrefix(r.secret.Name, contract.ServicesSecretPrefix)
		if found.Revision != "" && is != name {
			continue
		}
		manifest, err := contract.ManifestFromConfigMap(r.manifest.Data)
		if err != nil {
			continue // a newer release published it
		}
		secret, err := contract.ParseConfidential(r.secret.Data[contract.ConfidentialField], manifest)
		if err == nil {
			found = blueprint.Desired{Revision: is, Manifest: manifest, Confidential: secret}
		}
	}
	return found, nil
}
