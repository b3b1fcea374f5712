package apply

import (
	"context"
	"slices"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// staleKubeconfigs finds the kubeconfigs that must get the CA of the node's revision, and adds them to
// have.StaleKubeconfigs. A kubeconfig keeps its CA until the new CA verifies the API server, because the revision may
// be older than the API server's CA, or the API server may not use the new CA yet.
func (a *Applier) staleKubeconfigs(ctx context.Context, want plan.Desired, have *plan.Observed) {
	have.StaleKubeconfigs = map[string]bool{}
	reached := map[string]error{}
	for _, f := range want.Kubeconfigs {
		to, err := a.repointed(ctx, f)
		if err != nil {
			have.Unreadable[f.Path] = FileProblem(err)
		}
		if err != nil || to == nil {
			continue
		}
		if _, known := reached[to.URL]; !known {
			reached[to.URL] = a.reach(ctx, *to)
		}
		if err = reached[to.URL]; err != nil {
			logr.FromContextOrDiscard(ctx).Info("a kubeconfig keeps its CA: the new CA does not verify the API server",
				"path", f.Path, "detail", err.Error())
			continue
		}
		have.StaleKubeconfigs[f.Path] = true
	}
}

// `repointed` returns a kubeconfig's API server with the new CA, or nil if the kubeconfig already has the new CA.
func (a *Applier) repointed(ctx context.Context, f plan.File) (to *apiclient.Server, err error) {
	if _, _, err = a.digests.of(ctx, f.Path); err != nil { // cache the digest for the next QuickCheck
		return nil, err
	}
	err = winos.UntilClosed(ctx.Done(), func() error {
		to, err = apiclient.Repointed(a.host.Files, f.Path, apiclient.Server{CA: f.Content})
		return err
	})
	return to, err
}

// isRewritten reports whether a kubeconfig was written since the last pass.
func (a *Applier) isRewritten() bool {
	return slices.ContainsFunc(a.last.Kubeconfigs, func(f plan.File) bool {
		digest, _ := a.digests.cached(f.Path)
		return digest == changed
	})
}

// point writes the new CA into a kubeconfig. After an error, it marks the services that read this file as broken.
func (r *run) point(path string) error {
	f := r.want.Kubeconfig(path)
	r.digests.drop(path)
	err := apiclient.Point(r.host.Files, path, apiclient.Server{CA: f.Content})
	if err == nil {
		return nil
	}
	for _, name := range f.Services {
		r.broken[name] = true
	}
	return FileProblem(err)
}
