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

// FollowProxy plays the cluster network operator's part for the cluster-wide proxy: it writes the
// status of the Proxy, with what must never go through a proxy added, and puts the bundle that its
// spec names into every ConfigMap that asks for it by its label. (The real one adds its own
// distribution's CAs to the bundle.) As the real one, it injects nothing while that bundle is absent or can't be
// parsed. It runs until ctx ends.
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
		Controller: controllerconfig.Controller{SkipNameValidation: ptr.To(true)}, // several may run in one process
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

// systemBundle plays what Linux nodes trust by themselves, which the cluster network operator adds:
// about 150 certificates, of which one has expired now and then.
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
		_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // it never fails
	}
	return all.String(), nil
}

// trustedBundle is the bundle of the ConfigMap with this name. ok is false if that has none.
func trustedBundle(ctx context.Context, c client.Client, name string) (bundle string, ok bool, err error) {
	if name == "" {
		return "", true, nil
	}
	object := &corev1.ConfigMap{}
	err = c.Get(ctx, client.ObjectKey{Namespace: contract.ConfigNamespace, Name: name}, object)
	bundle = object.Data[contract.CABundleField]
	return bundle, x509.NewCertPool().AppendCertsFromPEM([]byte(bundle)), client.IgnoreNotFound(err)
}

// proxyStatus is what Linux nodes get. Without a proxy there are no exceptions from it either.
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
