package publish

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
)

// previous is what was published last: by this process, or else what an earlier one left. It always
// has a salt: that of before, so that the same content has the same revision after a restart, or a
// new one where there is none.
func (p *publisher) previous(ctx context.Context, config *v1alpha1.WindowsMachineConfig) (blueprint.Desired, error) {
	if last, _, ok := p.source.Published(); ok {
		return last, nil
	}
	status := config.Status
	if status.DesiredRevision == "" { // the object is absent, or was created again
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

// left is the revision that an earlier process published last, or else the newest that is there. It
// has neither features nor refusals.
func (p *publisher) left(ctx context.Context, revision string) (blueprint.Desired, error) {
	secrets, configMaps := &corev1.SecretList{}, &corev1.ConfigMapList{}
	if err := p.client.List(ctx, secrets, client.InNamespace(p.Namespace)); err != nil {
		return blueprint.Desired{}, fmt.Errorf("listing Secrets: %w", err)
	}
	if err := p.client.List(ctx, configMaps, client.InNamespace(p.Namespace)); err != nil {
		return blueprint.Desired{}, fmt.Errorf("listing ConfigMaps: %w", err)
	}
	manifests := map[string]contract.Manifest{}
	for i := range configMaps.Items {
		c := &configMaps.Items[i]
		if manifest, err := contract.ManifestFromConfigMap(c.Data); err == nil && isGenuine(c) {
			manifests[c.Name] = manifest
		}
	}
	slices.SortFunc(secrets.Items, func(a, b corev1.Secret) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
	var found blueprint.Desired
	for i := range secrets.Items {
		s := &secrets.Items[i]
		manifest, ok := manifests[s.Name]
		name, ours := strings.CutPrefix(s.Name, contract.ServicesSecretPrefix)
		if !ok || !ours || found.Revision != "" && name != revision {
			continue
		}
		data, _ := unpacked(s)
		secret, err := contract.ParseConfidential(data, manifest)
		if err != nil {
			continue // somebody else's
		}
		found = blueprint.Desired{Revision: name, Manifest: manifest, Confidential: secret}
	}
	return found, nil
}
