package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

// proxyFigures is the cost of downloads through the API server's service proxy.
type proxyFigures struct {
	Gigabytes float64 `json:"gigabytes"`
	Seconds   float64 `json:"seconds"`
	// ProcessorSecondsPerGB is the processor time of the API server for each gigabyte, in seconds. HundredJoins is the
	// processor time of the API server for 100 joins that download 100 MB each, in seconds.
	ProcessorSecondsPerGB float64 `json:"apiServerProcessorSecondsPerGB"`
	HundredJoins          float64 `json:"apiServerProcessorSecondsPerHundredJoins"`
}

const (
	proxyService = "bench-payload"
	downloads    = 10
	downloadSize = 100e6
)

// measureProxy downloads files as hosts do: with HTTP/1.1, and with TLS both to and from the API server.
func measureProxy(ctx context.Context, s *scene.Scene) (f *proxyFigures, err error) {
	own, err := fleet.OwnAddress()
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(own.String(), "0"))
	if err != nil {
		return nil, fmt.Errorf("listening for downloads: %w", err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			chunk := make([]byte, downloadSize/100)
			for range 100 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		})}}
	server.StartTLS()
	defer server.Close()
	if err = s.Offer(ctx, proxyService, listener.Addr().String()); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(s.Cluster.Admin())
	config.NextProtos = []string{"http/1.1"}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	defer client.CloseIdleConnections()
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/services/https:%s:%d/proxy/", s.Cluster.URL,
		contract.OperatorNamespace, proxyService, contract.PayloadServerPort)
	before, err := processorTimes()
	if err != nil {
		return nil, err
	}
	began, read := time.Now(), int64(0)
	for range downloads {
		n, err := download(ctx, client, url)
		if err != nil {
			return nil, fmt.Errorf("downloading through the service proxy: %w", err)
		}
		read += n
	}
	f = &proxyFigures{Gigabytes: float64(read) / 1e9, Seconds: time.Since(began).Seconds()}
	spent, err := spentSince(before)
	if err != nil {
		return nil, err
	}
	f.ProcessorSecondsPerGB = spent["kube-apiserver"].Seconds() / f.Gigabytes
	f.HundredJoins = f.ProcessorSecondsPerGB * 100 * downloadSize / 1e9
	return f, nil
}

func download(ctx context.Context, client *http.Client, url string) (read int64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if answer.StatusCode != http.StatusOK {
		return 0, errors.New(answer.Status)
	}
	return io.Copy(io.Discard, answer.Body)
}
