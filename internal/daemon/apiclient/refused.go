package apiclient

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const refusedLimit = 15 * time.Second

// Refused reports whether the API server in a kubeconfig refuses a client certificate. If the API server no longer
// trusts the CA that signed the certificate, for example after a restore of etcd, it refuses even an unexpired
// certificate. If the API server doesn't answer, Refused returns an error.
func Refused(ctx context.Context, files winos.Files, kubeconfig, certificate string) (bool, error) {
	server, err := readKubeconfig(files, kubeconfig)
	if err != nil {
		return false, err
	}
	client, err := Connect(Options{Files: files, Server: server,
		Identity: Identity{Files: files, Certificate: certificate}})
	if err != nil {
		return false, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, refusedLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api", nil)
	if err != nil {
		return false, fmt.Errorf("asking %s: %w", server.URL, err)
	}
	response, err := client.RoundTrip(request)
	if err != nil {
		return false, fmt.Errorf("asking %s: %w", server.URL, err)
	}
	return response.StatusCode == http.StatusUnauthorized, response.Body.Close()
}
