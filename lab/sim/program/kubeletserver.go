package program

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// serve serves node logs and some metrics on kubelet's port, with the serving certificate. It accepts a client with a
// certificate that is signed by the CA in the configuration, or with a token that the API server accepts. The API
// server must also authorize the client.
func (k *kubelet) serve(ctx context.Context, serving *pair) (stop func(), err error) {
	clients, err := k.clientCAs()
	if err != nil {
		return nil, err
	}
	listener, err := k.ListenTCP(ctx, contract.KubeletPort)
	if err != nil {
		return nil, err
	}
	return serveTLS(listener, func() (*tls.Certificate, error) {
		if c := serving.get(); c != nil {
			return c, nil
		}
		return nil, errors.New("no serving certificate available for the kubelet")
	}, k.guard(clients, k.handler())), nil
}

// handler serves logs and metrics.
func (k *kubelet) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(logPath, k.logHandler())
	mux.HandleFunc("GET "+metricsPath, k.metrics)
	return mux
}

const metricsPath = "/metrics"

// metrics serves kubelet's metrics about its certificates, under the same names. If a certificate is missing, its
// metric says that it never expires.
func (k *kubelet) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	gauge := family(w, "gauge")
	for name, of := range map[string]*pair{"client": k.identity, "server": k.servingCertificate().store} {
		left := math.Inf(1)
		if c := of.get(); c != nil {
			left = c.Leaf.NotAfter.Sub(k.Host.System.Now()).Seconds()
		}
		gauge("kubelet_certificate_manager_"+name+"_ttl_seconds", sample{"", left})
	}
}

// clientCAs returns the CAs that sign client certificates. If the configuration has none, no client certificate is
// accepted.
func (k *kubelet) clientCAs() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	path := k.config.Authentication.X509.ClientCAFile
	if path == "" {
		return pool, nil
	}
	content, err := winos.ReadFile(k.Host.Files, path)
	if err != nil {
		return nil, fmt.Errorf("loading the client CA file: %w", err)
	}
	pool.AppendCertsFromPEM(content)
	return pool, nil
}

// guard returns a handler that calls next if the API server authorizes the client for the subresource of the Node.
func (k *kubelet) guard(clients *x509.CertPool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, groups, known := k.client(r, clients)
		if !known {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		review, err := k.server.client.AuthorizationV1().SubjectAccessReviews().Create(r.Context(),
			&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, Groups: groups,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Version: "v1", Resource: "nodes",
					Subresource: subresource(r.URL.Path), Name: k.node, Verb: verb(r.Method)},
			}}, metav1.CreateOptions{})
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case !review.Status.Allowed:
			http.Error(w, "Forbidden", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// client returns the user and the groups of a client. It identifies the client by the client's certificate. If the
// configuration enables token authentication, it also accepts a token that the API server accepts.
func (k *kubelet) client(r *http.Request, clients *x509.CertPool) (user string, groups []string, known bool) {
	if certificates := r.TLS.PeerCertificates; len(certificates) > 0 {
		subject := certificates[0].Subject
		_, err := certificates[0].Verify(x509.VerifyOptions{Roots: clients, CurrentTime: k.Host.System.Now(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return subject.CommonName, append(subject.Organization, "system:authenticated"), err == nil
	}
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer || !isTrue(k.config.Authentication.Webhook.Enabled, true) {
		return "", nil, false
	}
	review, err := k.server.client.AuthenticationV1().TokenReviews().Create(r.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated {
		return "", nil, false
	}
	return review.Status.User.Username, review.Status.User.Groups, true
}

// subresource maps a path to a subresource of the Node, as kubelet does.
func subresource(path string) string {
	switch {
	case strings.HasPrefix(path, logPath):
		return "log"
	case strings.HasPrefix(path, metricsPath):
		return "metrics"
	}
	return "proxy"
}

// verb returns the verb that kubelet authorizes for a method of HTTP.
func verb(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPost:
		return "create"
	}
	return "update"
}
