package cluster

import (
	"context"
	"fmt"
	"os"
	"time"
)

// lockPoll is the interval between attempts in acquire. A build takes minutes, so a quarter of a second causes neither
// noticeable delay nor load.
const lockPoll = 250 * time.Millisecond

// acquire takes the lock for the file at path. If another process holds the lock, acquire waits, and calls `waiting`
// with the time so far once per progressInterval. The lock ends when release is called or the process ends. The file
// stays: if it were deleted, two processes could lock two different files with the same name.
func acquire(ctx context.Context, path string, waiting func(waited time.Duration)) (release func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	began, reported := time.Now(), time.Time{}
	ticker := time.NewTicker(lockPoll)
	defer ticker.Stop()
	for {
		locked, err := tryLock(file)
		if locked {
			return func() { file.Close() }, nil
		}
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if time.Since(reported) >= progressInterval {
			reported = time.Now()
			waiting(time.Since(began).Round(time.Second))
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
}
