package payloadserver

import (
	"bytes"
	"log"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
)

// logPause is the least time between two lines about connections: whoever reaches the port makes
// them.
const logPause = time.Minute

// errorLog is what net/http writes to about connections. It passes on what it is told of a panic, and
// of all else one line in each pause.
type errorLog struct {
	log  logr.Logger
	some rate.Sometimes
}

// newErrorLog is for http.Server's ErrorLog.
func newErrorLog(to logr.Logger) *log.Logger {
	return log.New(&errorLog{log: to, some: rate.Sometimes{Interval: logPause}}, "", 0)
}

// Write is io.Writer, of whole lines.
func (e *errorLog) Write(line []byte) (int, error) {
	if text := string(bytes.TrimSpace(line)); bytes.HasPrefix(line, []byte("http: panic")) {
		e.log.Info("a request was not answered", "detail", text)
	} else {
		e.some.Do(func() {
			e.log.Info("a connection failed; others are not logged for a while", "detail", text, "pause", logPause.String())
		})
	}
	return len(line), nil
}
