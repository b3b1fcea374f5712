package cluster

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"

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
	ca, published := r.publishedServerCA(ctx)
	if !published {
		return err
	}
	facts.BootstrapCA = ca
	facts.Troubles = append(facts.Troubles, contract.NewProblem(problem.Reason,
		"%s; until then the CA that was published last is in force", problem.Detail))
	return nil
}

// publishedServerCA reads it from the revision that was published last. What is not exactly what the revision's
// name stands for counts as not there, and so does what can't be read: both are tried again soon.
func (r *common) publishedServerCA(ctx context.Context) (ca string, published bool) {
	var secret corev1.Secret
	if err := r.cached.Get(ctx, keyIn(r.namespace, contract.LatestSecret), &secret); err != nil {
		return "", false
	}
	latest, err := contract.ParseLatest(secret.Data)
	if err != nil {
		return "", false
	}
	var configMap corev1.ConfigMap
	key := keyIn(r.namespace, contract.ServicesConfigMapPrefix+latest.Version)
	if err = r.cached.Get(ctx, key, &configMap); err != nil {
		return "", false
	}
	manifest, err := contract.ManifestFromConfigMap(configMap.Data)
	if err != nil || !contract.IsRevisionOfData(latest.Version, configMap.Data) {
		return "", false
	}
	ca, err = bundle([]byte(manifest.BootstrapCA()))
	return ca, err == nil
}

// kept is what was read last, for when it may not be read any more. Nodes are not told it as it is, so that a restart
// of the operator forgets it.
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

// recall is what was read last, while a problem keeps it from being read. Where nothing was read yet, hosts wait,
// and nodes don't.
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
