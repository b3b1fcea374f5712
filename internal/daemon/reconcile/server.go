package reconcile

import (
	"context"
	"slices"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
)

// serverCA is the CA of the API server, as far as the daemon itself goes.
type serverCA struct {
	// version is the revision that was looked at last, and pending its CA until it is trusted.
	version string
	pending []byte
}

// follow trusts the CA of a revision as soon as it was read, whether the host is ever brought to it or goes back from
// it: a daemon that can't verify the API server would not hear of the next.
func (s *serverCA) follow(ctx context.Context, c *candidate, trust func(context.Context, []byte) error) {
	if c != nil && c.Version != s.version {
		s.version, s.pending = c.Version, nil
		isCA := func(f contract.File) bool { return f.Path == contract.PathBootstrapCA }
		if i := slices.IndexFunc(c.Manifest.Files, isCA); i >= 0 {
			s.pending = []byte(c.Manifest.Files[i].Content)
		}
	}
	if len(s.pending) == 0 || trust == nil {
		return
	}
	if err := trust(ctx, s.pending); err != nil {
		logr.FromContextOrDiscard(ctx).Info("the API server is not verified by another CA yet", "version", s.version,
			"detail", err.Error())
		return
	}
	s.pending = nil
}
