package soak

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// mark is the name of the test's own objects. Each object is created once and then updated, so the number of
// objects stays the same.
const mark = "soak"

// change gives a setting a new value that depends on the round's number n.
func (r *run) change(ctx context.Context, setting Setting, n int) error {
	named := metav1.ObjectMeta{Name: mark}
	switch setting {
	case SettingMirror:
		mirrors := &configv1.ImageDigestMirrorSet{ObjectMeta: named}
		return put(ctx, r.admin, mirrors, func() {
			mirrors.Spec.ImageDigestMirrors = []configv1.ImageDigestMirrors{{Source: "registry.invalid/team",
				Mirrors: []configv1.ImageMirror{configv1.ImageMirror(fmt.Sprintf("mirror-%d.invalid/team", n))}}}
		})
	case SettingCA:
		return r.changeCA(ctx, named)
	case SettingPullSecret:
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace,
			Name: contract.PullSecret}}
		return put(ctx, r.admin, secret, func() {
			login := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "user:%d", n))
			secret.Data = map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil,
				`{"auths":{"registry.invalid":{"auth":%q}}}`, login)}
		})
	case SettingProxy:
		proxy := &configv1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
		return put(ctx, r.admin, proxy, func() {
			proxy.Spec.HTTPProxy = fmt.Sprintf("http://proxy-%d.invalid:3128", n)
		})
	case SettingLogging:
		return r.changeConfig(ctx, func(spec *v1alpha1.WindowsMachineConfigSpec) error {
			spec.Logging.MaxAge = &metav1.Duration{Duration: time.Duration(100+n) * time.Hour}
			return nil
		})
	case SettingKubelet:
		return r.changeConfig(ctx, func(spec *v1alpha1.WindowsMachineConfigSpec) error {
			raw, err := json.Marshal(map[string]int{"maxPods": 100 + n})
			spec.Kubelet.Config = &runtime.RawExtension{Raw: raw}
			return err
		})
	}
	return fmt.Errorf("the setting %q is unknown", setting)
}

// changeCA replaces the certificate of the registries' CA.
func (r *run) changeCA(ctx context.Context, named metav1.ObjectMeta) error {
	ca, err := newCA(mark)
	if err != nil {
		return err
	}
	bundle := &corev1.ConfigMap{ObjectMeta: named}
	bundle.Namespace = contract.ConfigNamespace
	if err = put(ctx, r.admin, bundle, func() { bundle.Data = map[string]string{"registry.invalid": ca} }); err != nil {
		return err
	}
	image := &configv1.Image{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	return put(ctx, r.admin, image, func() { image.Spec.AdditionalTrustedCA.Name = mark })
}

func (r *run) changeConfig(ctx context.Context, change func(*v1alpha1.WindowsMachineConfigSpec) error) error {
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	var wrong error
	if err := put(ctx, r.scene.Client, config, func() { wrong = change(&config.Spec) }); err != nil {
		return err
	}
	return wrong
}

// put updates an object, or creates it if it is missing.
func put(ctx context.Context, c client.Client, object client.Object, change func()) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
	switch {
	case err == nil:
		change()
		err = c.Update(ctx, object)
	case apierrors.IsNotFound(err):
		change()
		err = c.Create(ctx, object)
	}
	if err != nil {
		return fmt.Errorf("writing %T %s: %w", object, object.GetName(), err)
	}
	return nil
}
