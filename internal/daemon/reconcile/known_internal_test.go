package reconcile

import (
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// The state file contains the previous revision, for a rollback. If the confidential part in the state file is missing
// or damaged, the daemon must read the revision from the API server.
func TestAPreviousRevisionWithADamagedConfidentialPartIsReadAgain(t *testing.T) {
	t.Parallel()
	packed, digest, err := contract.Confidential{Salt: make([]byte, contract.SaltSize)}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m := contract.Manifest{Confidential: digest}
	before := &state.Revision{Name: "1.0.0-" + m.Digest()[:contract.RevisionDigits], Manifest: m, Confidential: packed}
	r := &revisions{state: &state.File{State: state.State{Before: before}}}
	if found := r.known(before.Name); found == nil {
		t.Fatal("a whole revision is not taken from the state file")
	}
	before.Confidential = nil
	if found := r.known(before.Name); found != nil {
		t.Error("a revision without its confidential part is taken from the state file")
	}
}
