package payloadserver

import (
	"bytes"
	"log"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
)

// logPause is the minimum time between two log lines about failed connections. Any client that can connect to the port
// can cause such lines.
const logPause = time.Minute

// errorLog receives the messages that net/http logs about connections. It logs every panic. In each period of logPause,
// it also logs one message about connections that can't be accepted, and one message about anything else. The limits
// are separate, so unknown clients can't hide the messages of the first kind.
type errorLog struct {
	log          logr.Logger
	accept, some rate.Sometimes
}

func newErrorLog(to logr.Logger) *log.Logger {
	seldom := func() rate.Sometimes { return rate.Sometimes{Interval: logPause} }
	return log.New(&errorLog{log: to, accept: seldom(), some: seldom()}, "", 0)
}

// Write implements io.Writer. Each call must write one whole line.
func (e *errorLog) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	switch {
	case strings.HasPrefix(text, "http: panic"):
		e.log.Info("a request was not answered", "detail", text)
	case strings.HasPrefix(text, "http: Accept error"):
		e.accept.Do(func() { e.log.Info("connections can't be accepted", "detail", text) })
	default:
		e.some.Do(func() {
			e.log.Info("a connection failed; further failures are not logged for a while", "detail", text,
				"pause", logPause.String())
		})
	}
	return len(line), nil
}
