//go:build unix

package cluster

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

func TestALockIsWaitedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	release, err := acquire(t.Context(), path, func(time.Duration) { t.Error("acquire waited for a free lock") })
	if err != nil {
		t.Fatal(err)
	}

	waiting, taken := make(chan struct{}), make(chan error, 1)
	go func() {
		releaseSecond, err := acquire(t.Context(), path, func(time.Duration) { close(waiting) })
		if err == nil {
			releaseSecond()
		}
		taken <- err
	}()
	<-waiting
	select {
	case err := <-taken:
		t.Fatalf("the lock was taken twice: %v", err)
	default:
	}
	release()
	if err := <-taken; err != nil {
		t.Error(err)
	}
}

func TestWaitingForALockEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	release, err := acquire(t.Context(), path, func(time.Duration) {})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := acquire(ctx, path, func(time.Duration) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
