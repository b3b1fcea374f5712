package cluster

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	nameProxy      = "the Proxy cluster"
	nameImage      = "the Image cluster of config.openshift.io"
	namePullSecret = "the Secret " + contract.PullSecret + " in " + contract.ConfigNamespace
)

// clusterProxy reads the proxy from the status of the Proxy object, as OpenShift's machine config operator does for
// Linux nodes. The cluster network operator adds to the status all destinations that must never be reached through a
// proxy. As on Linux nodes, the CAs in spec.trustedCA are installed even if no proxy is set.
func (r *Reader) clusterProxy(ctx context.Context, facts *blueprint.Facts) error {
	type part struct {
		Proxy     blueprint.Proxy
		TrustedCA string
	}
	known, err := lastOf(ctx, &r.common, facts, named(r.Cached, singleton, nameProxy),
		func(object *configv1.Proxy) (part, error) {
			spec, status := object.Spec, object.Status
			if spec.HTTPProxy+spec.HTTPSProxy != "" && status == (configv1.ProxyStatus{}) {
				return part{}, absent("%s has a spec and no status: the cluster network operator has not accepted it",
					nameProxy)
			}
			return part{blueprint.Proxy{HTTP: status.HTTPProxy, HTTPS: status.HTTPSProxy, None: status.NoProxy},
				spec.TrustedCA.Name}, nil
		})
	if isAbsent(err) {
		facts.Proxy = r.Proxy
		return nil
	}
	if err != nil {
		return err
	}
	facts.Proxy, facts.InjectsCA = known.Proxy, true
	user := known.TrustedCA
	if facts.Proxy.HTTP+facts.Proxy.HTTPS+user == "" {
		return nil
	}
	if err = r.injectedCA(ctx, facts); err != nil || user == "" {
		return err
	}
	data, err := r.configMap(ctx, facts, contract.ConfigNamespace, user, nameProxy+", spec.trustedCA")
	if err != nil || data == nil {
		return err
	}
	bundles(facts, []string{contract.CABundleField}, data, contract.ConfigNamespace+"/"+user)
	return nil
}

// injectedCA adds the CA bundle that OpenShift injects into the operator's ConfigMap. Injection takes a moment, so the
// bundle may be missing at first. The operator remembers only that the bundle existed, because blueprint keeps the
// published certificates while a bundle is pending.
func (r *Reader) injectedCA(ctx context.Context, facts *blueprint.Facts) error {
	const name = "the ConfigMap " + contract.TrustedCAConfigMap
	var object corev1.ConfigMap
	_, err := orNone(last(ctx, &r.common, facts, name, func() (bool, error) {
		err := get(ctx, r.Cached, &object, keyIn(r.Namespace, contract.TrustedCAConfigMap), name)
		if err == nil && blank([]byte(object.Data[contract.CABundleField])) {
			err = absent("%s has nothing under %s", name, contract.CABundleField)
		}
		return err == nil, err
	}))
	if err != nil {
		return err
	}
	bundle := blueprint.Bundle{Source: name, Injected: true, PEM: []byte(object.Data[contract.CABundleField])}
	bundle.Pending = blank(bundle.PEM)
	facts.Trust = append(facts.Trust, bundle)
	return nil
}

// The method `image` reads the registries that nodes may pull from, and the CAs of registries. It skips search
// registries, because containerd receives full names only. In the ConfigMap with the CAs, each key is the <host> of a
// registry, or <host>..<port>, because the keys of a ConfigMap can't contain colons.
func (r *Reader) image(ctx context.Context, facts *blueprint.Facts) error {
	type part struct {
		Registries contract.RegistrySources
		TrustedCA  string
	}
	known, err := orNone(lastOf(ctx, &r.common, facts, named(r.Cached, singleton, nameImage),
		func(object *configv1.Image) (part, error) {
			sources := object.Spec.RegistrySources
			return part{contract.RegistrySources{
				Blocked: sources.BlockedRegistries, Restricted: len(sources.AllowedRegistries) > 0,
				Allowed: sources.AllowedRegistries, Insecure: sources.InsecureRegistries,
			}, object.Spec.AdditionalTrustedCA.Name}, nil
		}))
	facts.Registries = known.Registries
	name := known.TrustedCA
	if err != nil || name == "" {
		return err
	}
	data, err := r.configMap(ctx, facts, contract.ConfigNamespace, name, nameImage+", spec.additionalTrustedCA")
	if err != nil || data == nil {
		return err
	}
	facts.RegistryTrust = make(map[string]blueprint.Bundle, len(data))
	for _, key := range slices.Sorted(maps.Keys(data)) {
		facts.RegistryTrust[registry(key)] = under(facts, key, data, contract.ConfigNamespace+"/"+name)
	}
	return nil
}

func registry(key string) string {
	if i := strings.LastIndex(key, ".."); i >= 0 {
		return strings.ToLower(key[:i]) + ":" + key[i+2:]
	}
	return strings.ToLower(key)
}

// additionalCA adds the CAs in the ConfigMap with this name, which administrators set for Windows nodes only.
func (r *common) additionalCA(ctx context.Context, facts *blueprint.Facts, name string) error {
	if name == "" {
		return nil
	}
	const who = "spec.trust.additionalCA of the WindowsMachineConfig"
	data, err := r.configMap(ctx, facts, r.Namespace, name, who)
	if err != nil || data == nil {
		return err
	}
	if len(data) == 0 {
		missing(facts, fmt.Sprintf("the ConfigMap %s/%s", r.Namespace, name), who, "has no keys")
	}
	bundles(facts, slices.Sorted(maps.Keys(data)), data, name)
	return nil
}

func bundles(facts *blueprint.Facts, keys []string, data map[string][]byte, name string) {
	for _, key := range keys {
		facts.Trust = append(facts.Trust, under(facts, key, data, name))
	}
}

// The function `under` returns the bundle under one key of a ConfigMap. If there is no text under the key, the bundle
// is pending, and facts.Rejected gets a problem.
func under(facts *blueprint.Facts, key string, data map[string][]byte, name string) blueprint.Bundle {
	pem := data[key]
	if blank(pem) {
		facts.Rejected = append(facts.Rejected,
			contract.NewProblem(contract.ReasonTrustSourceMissing, "the ConfigMap %s has nothing under %s", name, key))
	}
	return blueprint.Bundle{Source: fmt.Sprintf("the ConfigMap %s, key %s", name, key), PEM: pem, Pending: blank(pem)}
}

func blank(pem []byte) bool { return len(bytes.TrimSpace(pem)) == 0 }

// The function `missing` adds a pending bundle, and a problem with the setting `who` and its ConfigMap `what`.
func missing(facts *blueprint.Facts, what, who, why string) {
	facts.Rejected = append(facts.Rejected,
		contract.NewProblem(contract.ReasonTrustSourceMissing, "%s names %s, which %s", who, what, why))
	facts.Trust = append(facts.Trust, blueprint.Bundle{Source: what, Pending: true})
}

// configMap returns the values of a ConfigMap that an administrator chose. If the ConfigMap doesn't exist, or may not
// be read, it returns nil and adds a pending bundle, so that blueprint keeps the published certificates.
func (r *common) configMap(ctx context.Context, facts *blueprint.Facts, namespace, name, who string) (map[string][]byte,
	error) {
	var object corev1.ConfigMap
	what := fmt.Sprintf("the ConfigMap %s/%s", namespace, name)
	err := get(ctx, r.Cached, &object, keyIn(namespace, name), what)
	if problem, ok := contract.AsProblem(err); ok {
		missing(facts, what, who, strings.TrimPrefix(problem.Detail, what+" "))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := make(map[string][]byte, len(object.Data)+len(object.BinaryData))
	maps.Copy(data, object.BinaryData)
	for key, text := range object.Data {
		data[key] = []byte(text)
	}
	return data, nil
}
