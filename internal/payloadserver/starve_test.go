package payloadserver_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payloadserver"
)

// shelves contains the blobs of several shelves.
type shelves []*shelf

func (s shelves) Blob(digest string) (payload.Blob, bool) {
	for _, one := range s {
		if blob, found := one.Blob(digest); found {
			return blob, true
		}
	}
	return payload.Blob{}, false
}

func TestA55_OneNodeDoesNotKeepOthersFromThePayload(t *testing.T) {
	t.Parallel()
	const transfers, greedy = 4, 20
	signer := newCA(t)
	slow := &shelf{content: []byte("slow"), gate: make(chan struct{}), opened: make(chan struct{}, greedy)}
	quick := &shelf{content: []byte("quick")}
	known := func(context.Context, string) (bool, error) { return true, nil }
	p := start(t, payloadserver.Options{Blobs: shelves{slow, quick}, Clients: signer.pool, Known: known,
		Transfers: transfers})
	attacker := signer.issue(t, contract.DaemonUserPrefix+"win-1", contract.DaemonGroup)
	other := signer.issue(t, contract.DaemonUserPrefix+"win-2", contract.DaemonGroup)
	statuses := make(chan int, greedy)
	for range greedy {
		go func() {
			status, _, _ := p.get(t, &attacker, contract.PayloadServerPath+slow.digest(), "")
			statuses <- status
		}()
	}
	// Continue until all slots are used or the node has reached its limit.
	for opened := 0; opened < transfers; {
		select {
		case <-slow.opened:
			opened++
			continue
		case status := <-statuses:
			statuses <- status
			opened = transfers
		}
	}
	began := time.Now()
	status, body, err := p.get(t, &other, contract.PayloadServerPath+quick.digest(), "")
	if err != nil || status != http.StatusOK || string(body) != "quick" {
		t.Errorf("another node got %d %q after %s: %v", status, body, time.Since(began), err)
	}
	close(slow.gate)
	busy := 0
	for range greedy {
		if <-statuses == http.StatusServiceUnavailable {
			busy++
		}
	}
	if busy == 0 || slow.peak.Load() > 2 {
		t.Errorf("of %d requests of one node %d were put off and %d were served at once", greedy, busy,
			slow.peak.Load())
	}
}
