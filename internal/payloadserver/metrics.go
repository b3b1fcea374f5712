package payloadserver

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Results of requests in the metrics.
const (
	resultSent    = "sent"    // the whole response was sent
	resultCut     = "cut"     // the transfer was interrupted; the daemon requests the rest
	resultBusy    = "busy"    // no slot was free in time
	resultRefused = "refused" // the client isn't the daemon of a known node, or its request is malformed
	resultMissing = "missing" // the payload doesn't contain the blob
	resultFailed  = "failed"  // the server had an error
)

// Reasons of failed connections in the metrics.
const (
	failedCertificate = "certificate" // ended before the client had sent a certificate and a request
	failedFull        = "full"        // closed by the server, because too many connections were open
)

type meters struct {
	bytes    prometheus.Counter
	requests *prometheus.CounterVec
	failed   *prometheus.CounterVec
	sending  prometheus.Gauge
	waiting  prometheus.Gauge
}

// newMeters creates the metrics. It registers them if registry is not nil.
func newMeters(registry prometheus.Registerer) *meters {
	auto := promauto.With(registry)
	return &meters{
		bytes: auto.NewCounter(prometheus.CounterOpts{
			Name: "wmco_payload_sent_bytes_total", Help: "Bytes of the payload that daemons fetched.",
		}),
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "wmco_payload_requests_total", Help: "Requests for parts of the payload, by result: " +
				"sent, cut, busy, refused, missing, failed.",
		}, []string{"result"}),
		failed: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "wmco_payload_failed_connections_total", Help: "Connections to the payload server that ended " +
				"without a request, by reason: certificate (none was shown), full (too many were open).",
		}, []string{"reason"}),
		sending: auto.NewGauge(prometheus.GaugeOpts{
			Name: "wmco_payload_transfers", Help: "Transfers of the payload in progress.",
		}),
		waiting: auto.NewGauge(prometheus.GaugeOpts{
			Name: "wmco_payload_waiting", Help: "Requests that wait until another transfer ends.",
		}),
	}
}
