package main

import (
	"context"
	"testing"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// lacking is a desired state whose facts lack something for a reason.
type lacking contract.Reason

func (l lacking) Current(context.Context) (blueprint.Desired, blueprint.Facts, error) {
	return blueprint.Desired{}, blueprint.Facts{
		Lacks: []*contract.Problem{contract.NewProblem(contract.Reason(l), "x")}}, nil
}

// Nodes that have joined get their serving certificates renewed while hosts can't join, unless it is not known
// which addresses they may hold.
func TestOnlyAFactThatIsNotKnownHoldsServingCertificates(t *testing.T) {
	t.Parallel()
	for reason, holds := range map[contract.Reason]bool{
		contract.ReasonClusterFactsIncomplete: true, contract.ReasonBootstrapNotGranted: false,
	} {
		if _, _, err := reserved(lacking(reason))(t.Context()); (err != nil) != holds {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
