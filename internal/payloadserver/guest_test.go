package payloadserver_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payloadserver"
)

// The API server's proxy sends no client certificate, so its client is a guest. Guests have access only while a host
// joins by itself.
func TestA85_AGuestReadsWhileAHostJoinsByItself(t *testing.T) {
	t.Parallel()
	signer, goods := newCA(t), &shelf{content: []byte("x")}
	var joins atomic.Bool
	p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool, Known: only("win-1"),
		Guests: func(context.Context) (bool, error) { return joins.Load(), nil }})
	path := contract.PayloadServerPath + goods.digest()
	if _, _, err := p.get(t, nil, path, ""); err == nil {
		t.Error("a guest has access although no host joins by itself")
	}
	joins.Store(true)
	if status, body, err := p.get(t, nil, path, ""); err != nil || status != http.StatusOK || string(body) != "x" {
		t.Errorf("a guest while a host joins: %d %q %v", status, body, err)
	}
	kubelet := signer.issue(t, contract.KubeletUserPrefix+"win-1", contract.KubeletGroup)
	if status, _, err := p.get(t, &kubelet, path, ""); err != nil || status != http.StatusForbidden {
		t.Errorf("a kubelet counts as a guest: %d %v", status, err)
	}
}

// Any client in the cluster may be a guest. So guests get at most half of the transfers. If these are in use, the
// server refuses a guest's request immediately.
func TestA85_GuestsLeaveRoomForDaemons(t *testing.T) {
	t.Parallel()
	signer, goods := newCA(t), &shelf{content: []byte("x"), gate: make(chan struct{}), opened: make(chan struct{}, 8)}
	p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool, Known: only("win-1"), Transfers: 2,
		Guests: func(context.Context) (bool, error) { return true, nil }})
	path := contract.PayloadServerPath + goods.digest()
	first := make(chan int, 1)
	go func() {
		status, _, _ := p.get(t, nil, path, "")
		first <- status
	}()
	<-goods.opened
	if status, _, err := p.get(t, nil, path, ""); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("a second guest: %d %v", status, err)
	}
	daemon, served := signer.issue(t, contract.DaemonUserPrefix+"win-1", contract.DaemonGroup), make(chan int, 1)
	go func() {
		status, _, _ := p.get(t, &daemon, path, "")
		served <- status
	}()
	<-goods.opened
	close(goods.gate)
	if guest, node := <-first, <-served; guest != http.StatusOK || node != http.StatusOK {
		t.Errorf("the guest %d, the daemon %d", guest, node)
	}
}
