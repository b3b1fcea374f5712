package verbs

import (
	"context"
	"errors"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
)

// reach checks that the API server answers at the address that nodes use, and that its certificate is valid for the
// cluster's CA by the host's own clock.
func reach(ctx context.Context, request contract.PreflightRequest, now func() time.Time) error {
	if request.APIServer == "" {
		return nil
	}
	if len(request.CA) == 0 {
		return errors.New("the operator sent no certificate of the API server's CA")
	}
	return apiclient.Reach(ctx, apiclient.Server{URL: request.APIServer, CA: request.CA}, now)
}
