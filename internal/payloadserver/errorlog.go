package payloadserver

import (
	"bytes"
	"log"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
)

// logPause is the minimum time between two lines about connections, because any client that reaches the port can
// cause such lines.
const logPause = time.Minute

// errorLog receives net/http's messages about connections. It passes on every panic. Once per logPause, it passes on
// one line about connections that can't be accepted, and one other line, so that unknown clients can't hide a
// message.
type errorLog struct {
	log          logr.Logger
	accept, some rate.Sometimes
}

// newErrorLog is for http.Server's ErrorLog.
func newErrorLog(to logr.Logger) *log.Logger {
	seldom := func() rate.Sometimes { return rate.Sometimes{Interval: logPause} }
	return log.New(&errorLog{log: to, accept: seldom(), some: seldom()}, "", 0)
}

// Write is io.Writer, of whole lines.
func (e *errorLog) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	switch {
	case strings.HasPrefix(text, "http: panic"):
		e.log.Info("a request was not answered", "detail", text)
	case strings.HasPrefix(text, "http: Accept error"):
		e.accept.Do(func() { e.log.Info("connections can't be accepted", "detail", text) })
	default:
		e.some.Do(func() {
			e.log.Info("a connection failed; others are not logged for a while", "detail", text,
				"pause", logPause.String())
		})
	}
	return len(line), nil
}
