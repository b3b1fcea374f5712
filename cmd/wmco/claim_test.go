package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
)

// The operator waits for an API server that has just started. But if the API server refuses the operator's token, the
// operator must log this after the first attempt and not only when it stops waiting.
func TestAnInvalidTokenOfTheOperatorIsLoggedAtOnce(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized",` +
			`"reason":"Unauthorized","code":401}`))
	}))
	t.Cleanup(server.Close)
	restConfig := &rest.Config{Host: server.URL}
	clients, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var lines []string
	log := funcr.New(func(_, line string) {
		lines = append(lines, line)
		cancel()
	}, funcr.Options{})
	if _, err = claimNodes(logr.NewContext(ctx, log), restConfig, clients, contract.OperatorNamespace); err == nil {
		t.Error("the nodes were claimed")
	}
	if len(lines) == 0 || !strings.Contains(lines[0], "refuses the operator's token") {
		t.Errorf("logged %q", lines)
	}
}
