package cluster

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// keepServerCA takes, while the API server's CA can't be read, the one that was published last: nodes have it
// anyway, and whatever else changes must reach them. Where none was published yet, there is nothing to keep.
func (r *common) keepServerCA(ctx context.Context, facts *blueprint.Facts, err error) error {
	problem, ok := contract.AsProblem(err)
	if !ok {
		return err
	}
	manifest, unread := r.publishedManifest(ctx)
	ca, none := bundle([]byte(manifest.BootstrapCA()))
	if unread != nil || none != nil {
		return err
	}
	facts.BootstrapCA = ca
	facts.Troubles = append(facts.Troubles, contract.NewProblem(problem.Reason,
		"%s; until then the CA that was published last is in force", problem.Detail))
	return nil
}

// keepDomain takes, where nothing says the cluster's DNS domain, the one that nodes have: with another one they would
// all be drained, and pods that are made afterwards would find no Service by its short name. Where that is the usual
// one, as on a cluster that kubeadm did not make, nothing is wrong.
func (p *Plain) keepDomain(ctx context.Context, facts *blueprint.Facts) error {
	domain, known := p.domain.last()
	if !known {
		manifest, err := p.publishedManifest(ctx)
		if err != nil {
			return err
		}
		domain = manifest.ClusterDomain()
	}
	usual := facts.ClusterDomain()
	if blueprint.CheckDomain(domain) != nil {
		domain = usual
	}
	// what is published is gone for a moment when another revision is, and may be of a setting that is removed again
	p.domain.set(domain)
	if domain == usual {
		return nil
	}
	facts.Domain = domain
	facts.Troubles = append(facts.Troubles, incomplete("%s does not say the DNS domain of the cluster any more; "+
		"until %s does, %s stays, which nodes have", nameKubeadm, settingDomain, domain))
	return nil
}

// isFlannel reports whether the network is flannel: as the setting says, or without one, which may be lost, as nodes
// have it. Without flanneld and kube-proxy all of them would be drained, and none would be Ready again.
func (p *Plain) isFlannel(ctx context.Context, setting v1alpha1.NetworkType, facts *blueprint.Facts) (bool, error) {
	switch setting {
	case "":
	case v1alpha1.NetworkExternal:
		p.onFlannel.set(false)
		return false, nil
	default: // flannel is noted once its configuration is accepted
		return setting == v1alpha1.NetworkFlannel, nil
	}
	is, known := p.onFlannel.last()
	if !known {
		manifest, err := p.publishedManifest(ctx)
		if err != nil {
			return false, err
		}
		is = slices.ContainsFunc(manifest.Services, func(s contract.Service) bool {
			return s.Name == contract.ServiceFlannel
		})
		p.onFlannel.set(is) // what is published is gone for a moment, as above
	}
	if is {
		facts.Troubles = append(facts.Troubles, incomplete("%s is not set any more; until it is, flannel stays, which "+
			"nodes have: set it to Flannel, or to External if somebody else brings the network of pods",
			settingNetwork))
	}
	return is, nil
}

// publishedManifest is that of the revision that was published last; without one the answer is empty. What is not
// exactly what the revision's name stands for counts as not there.
func (r *common) publishedManifest(ctx context.Context) (contract.Manifest, error) {
	var secret corev1.Secret
	found, err := optional(ctx, r.Cached, &secret, keyIn(r.Namespace, contract.LatestSecret),
		"the Secret "+contract.LatestSecret)
	if err != nil || !found {
		return contract.Manifest{}, err
	}
	latest, err := contract.ParseLatest(secret.Data)
	if err != nil {
		return contract.Manifest{}, nil //nolint:nilerr // it is not what its name stands for
	}
	var configMap corev1.ConfigMap
	name := contract.ServicesConfigMapPrefix + latest.Revision
	if found, err = optional(ctx, r.Cached, &configMap, keyIn(r.Namespace, name), "the ConfigMap "+name); err != nil ||
		!found {
		return contract.Manifest{}, err
	}
	manifest, err := contract.ManifestFromConfigMap(configMap.Data)
	if err != nil || !contract.IsRevisionOfData(latest.Revision, configMap.Data) {
		return contract.Manifest{}, nil //nolint:nilerr // as above
	}
	return manifest, nil
}

// kept is what was read last, for when it can't be read any more. A restart of the operator forgets it.
type kept[T any] struct {
	mu    sync.Mutex
	known bool
	value T
}

func (k *kept[T]) set(value T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known, k.value = true, value
}

// last is what was read last; false where nothing was read yet.
func (k *kept[T]) last() (T, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.value, k.known
}

// recall is what was read last, while a problem keeps it from being read. Where nothing was read yet, hosts wait, and
// nodes only for what needs it.
func (k *kept[T]) recall(facts *blueprint.Facts, problem *contract.Problem) T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known {
		facts.Troubles = append(facts.Troubles, contract.NewProblem(problem.Reason,
			"%s; until then what was read last counts", problem.Detail))
	} else {
		facts.Lacks = append(facts.Lacks, problem)
	}
	return k.value
}
