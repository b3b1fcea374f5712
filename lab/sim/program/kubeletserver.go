package program

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// serve answers on kubelet's port: with the serving certificate that was approved, to clients whose
// certificate the configuration's CA signed and whom the API server lets, and node logs only.
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
	}, k.guard(clients, k.logHandler())), nil
}

// clientCAs sign the certificates of kubelet's clients; nobody's are accepted where none is configured.
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

// guard lets those in who show a certificate and may read logs of this Node. Tokens are not accepted.
func (k *kubelet) guard(clients *x509.CertPool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		certificates := r.TLS.PeerCertificates
		if len(certificates) == 0 {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		client := certificates[0]
		_, err := client.Verify(x509.VerifyOptions{Roots: clients, CurrentTime: k.Host.System.Now(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if err != nil {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		review, err := k.server.client.AuthorizationV1().SubjectAccessReviews().Create(r.Context(),
			&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: client.Subject.CommonName, Groups: append(client.Subject.Organization, "system:authenticated"),
				ResourceAttributes: &authorizationv1.ResourceAttributes{Version: "v1", Resource: "nodes",
					Subresource: "log", Name: k.node, Verb: verb(r.Method)},
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

// verb is what kubelet asks the API server about for a method.
func verb(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPost:
		return "create"
	}
	return "update"
}
