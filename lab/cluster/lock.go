package cluster

import (
	"context"
	"fmt"
	"os"
	"time"
)

// lockPoll is how often acquire tries again. A build takes minutes, so a quarter
// of a second is neither a delay nor a load.
const lockPoll = 250 * time.Millisecond

// acquire takes the lock that the file at path stands for, and waits while
// another process has it, calling waiting with the time waited so far about as
// often as a build reports. The lock ends with release or with the process. The
// file stays: deleting it would let two processes lock two files of one name.
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
