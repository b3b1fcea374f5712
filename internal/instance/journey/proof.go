package journey

import (
	"context"
	"fmt"
)

type proofKey struct{}

// WithProof has whatever is done to a Node or its pods under this context wait for a proof that the instance,
// by which it was decided, is as the API server has it: a place in the rollout budget that only a cache shows
// was given back, and may be another's. prove is called before each of them, and answers a conflict where the
// instance is another by now.
func WithProof(ctx context.Context, prove func(ctx context.Context) error) context.Context {
	return context.WithValue(ctx, proofKey{}, prove)
}

// proven returns when what was decided may be done.
func proven(ctx context.Context) error {
	prove, ok := ctx.Value(proofKey{}).(func(ctx context.Context) error)
	if !ok {
		return nil
	}
	if err := prove(ctx); err != nil {
		return fmt.Errorf("%w: %w", errLags, err)
	}
	return nil
}
