// Package leak checks whether the tests of a package leave goroutines behind. In packages that start goroutines,
// TestMain calls it. It doesn't depend on the tested packages.
package leak

import (
	"time"

	"go.uber.org/goleak"
)

// limit is the time for goroutines to end. goleak itself only waits half a second, which is too short on a busy
// machine.
const limit = time.Minute

// VerifyTestMain is goleak's VerifyTestMain with the longer limit.
func VerifyTestMain(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(waiting{m, options}, options...)
}

// Find is goleak's Find with the longer limit.
func Find(options ...goleak.Option) error {
	err := goleak.Find(options...)
	for end := time.Now().Add(limit); err != nil && time.Now().Before(end); {
		err = goleak.Find(options...) // sleeps between its checks
	}
	return err
}

// waiting is a TestingM that waits after the tests until the goroutines have ended.
type waiting struct {
	goleak.TestingM
	options []goleak.Option
}

func (w waiting) Run() int {
	code := w.TestingM.Run()
	if code == 0 {
		_ = Find(w.options...) // goleak reports it
	}
	return code
}
