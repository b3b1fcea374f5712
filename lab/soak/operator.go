package soak

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tokenLife is longer than any soak test.
const tokenLife = 24 * time.Hour

// letScrape creates a ServiceAccount that may read the operator's metrics, and stores the token of this account.
func (r *run) letScrape(ctx context.Context) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: mark}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: mark},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: mark},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: mark},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: mark}}}
	if err := errors.Join(r.admin.Create(ctx, account), r.admin.Create(ctx, role),
		r.admin.Create(ctx, binding)); err != nil {
		return fmt.Errorf("letting the operator's metrics be read: %w", err)
	}
	config, _, err := r.scene.Cluster.ServiceAccountConfig(ctx, account.Namespace, account.Name, tokenLife)
	if err != nil {
		return fmt.Errorf("letting the operator's metrics be read: %w", err)
	}
	r.token = config.BearerToken
	return nil
}

// mostMetrics is the maximum size of the operator's metrics in bytes.
const mostMetrics = 64 << 20

// operatorProcess reads the number of goroutines from the operator's metrics, and the rest from the kernel.
func (r *run) operatorProcess(ctx context.Context) (Process, error) {
	p, err := process(r.scene.Operator.PID())
	if err != nil {
		return p, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.scene.Operator.Metrics+"/metrics", nil)
	if err != nil {
		return p, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+r.token)
	// Don't verify the certificate, because the lab has no CA for it.
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the server is on this machine
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		return p, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return p, fmt.Errorf("reading the operator's metrics: the answer is %s", answer.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(answer.Body, mostMetrics))
	if err != nil {
		return p, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	goroutines := families["go_goroutines"].GetMetric()
	if len(goroutines) == 0 {
		return p, errors.New("the operator's metrics lack the number of goroutines")
	}
	p.Goroutines = int(goroutines[0].GetGauge().GetValue())
	return p, nil
}
