package openshift

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/internal/contract"
)

// FollowProxy simulates the cluster network operator for the cluster-wide proxy. It writes the Proxy's status, with the
// destinations that must never use a proxy. To every ConfigMap with the injection label, it writes the bundle that the
// Proxy's spec names, followed by the result of systemBundle. Like the real operator, it injects nothing while the
// bundle is absent or can't be parsed. It runs until ctx ends.
func FollowProxy(ctx context.Context, config *rest.Config) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	system, err := systemBundle()
	if err != nil {
		return err
	}
	asking := labels.SelectorFromSet(labels.Set{contract.InjectTrustedCALabel: "true"})
	made, err := manager.New(config, manager.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: controllerconfig.Controller{SkipNameValidation: ptr.To(true)}, // one process may run several
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{contract.ConfigNamespace: {},
				cache.AllNamespaces: {LabelSelector: asking}}}}},
	})
	if err != nil {
		return fmt.Errorf("making the cluster network operator: %w", err)
	}
	follow := func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, followOnce(ctx, made.GetClient(), system)
	}
	theProxy := func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: clusterName}}}
	}
	err = builder.ControllerManagedBy(made).Named("proxy").For(&configv1.Proxy{}).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(theProxy)).Complete(reconcile.Func(follow))
	if err != nil {
		return fmt.Errorf("making the cluster network operator: %w", err)
	}
	return made.Start(ctx)
}

func followOnce(ctx context.Context, c client.Client, system string) error {
	proxy := &configv1.Proxy{}
	if err := c.Get(ctx, client.ObjectKey{Name: clusterName}, proxy); err != nil {
		return client.IgnoreNotFound(err)
	}
	if want := proxyStatus(proxy.Spec); proxy.Status != want {
		proxy.Status = want
		if err := c.Status().Update(ctx, proxy); err != nil {
			return fmt.Errorf("writing the status of the Proxy: %w", err)
		}
	}
	bundle, ok, err := trustedBundle(ctx, c, proxy.Spec.TrustedCA.Name)
	if err != nil || !ok {
		return err
	}
	bundle += system
	list := &corev1.ConfigMapList{}
	if err = c.List(ctx, list, client.MatchingLabels{contract.InjectTrustedCALabel: "true"}); err != nil {
		return fmt.Errorf("listing the ConfigMaps that ask for the bundle: %w", err)
	}
	for i := range list.Items {
		object := &list.Items[i]
		if object.Data[contract.CABundleField] == bundle {
			continue
		}
		object.Data = map[string]string{contract.CABundleField: bundle}
		if err = c.Update(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("putting the bundle into %s/%s: %w", object.Namespace, object.Name, err)
		}
	}
	return nil
}

// systemBundle returns a valid and an expired certificate. They stand for the default trust of Linux nodes, which the
// cluster network operator adds: about 150 certificates, of which some are expired at times.
func systemBundle() (string, error) {
	var all strings.Builder
	for name, until := range map[string]time.Duration{"lab system": 24 * time.Hour, "lab system, expired": -time.Hour} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return "", fmt.Errorf("making the key of %s: %w", name, err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(until), IsCA: true,
			BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			return "", fmt.Errorf("making the certificate of %s: %w", name, err)
		}
		_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // it can't fail
	}
	return all.String(), nil
}

// trustedBundle returns the bundle in the ConfigMap with this name. ok is false if there is no bundle.
func trustedBundle(ctx context.Context, c client.Client, name string) (bundle string, ok bool, err error) {
	if name == "" {
		return "", true, nil
	}
	object := &corev1.ConfigMap{}
	err = c.Get(ctx, client.ObjectKey{Namespace: contract.ConfigNamespace, Name: name}, object)
	bundle = object.Data[contract.CABundleField]
	return bundle, x509.NewCertPool().AppendCertsFromPEM([]byte(bundle)), client.IgnoreNotFound(err)
}

// proxyStatus returns the settings for Linux nodes. Without a proxy, there are no exceptions either.
func proxyStatus(spec configv1.ProxySpec) configv1.ProxyStatus {
	if spec.HTTPProxy == "" && spec.HTTPSProxy == "" {
		return configv1.ProxyStatus{}
	}
	none := []string{".cluster.local", ".svc", "localhost", "127.0.0.1", serviceNetwork, clusterNetwork}
	for _, word := range strings.Split(spec.NoProxy, ",") {
		if word = strings.TrimSpace(word); word != "" {
			none = append(none, word)
		}
	}
	slices.Sort(none)
	return configv1.ProxyStatus{HTTPProxy: spec.HTTPProxy, HTTPSProxy: spec.HTTPSProxy,
		NoProxy: strings.Join(slices.Compact(none), ",")}
}
