package leak_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/windows-nodes/wmco/lab/leak"
)

func TestAGoroutineThatEndsLateIsNoLeak(t *testing.T) {
	before := goleak.IgnoreCurrent()
	end := make(chan struct{})
	go func() { <-end }()
	if goleak.Find(before) == nil {
		t.Fatal("the goroutine is not found while it runs")
	}
	time.AfterFunc(time.Second, func() { close(end) }) // twice the time that goleak itself waits
	if err := leak.Find(before); err != nil {
		t.Error(err)
	}
}
