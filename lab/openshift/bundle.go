package openshift

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/lab/cluster"
)

// ownerLabel is a label of objects that OLM creates. Its value is the name of their ClusterServiceVersion.
const ownerLabel = "olm.owner"

// bundled returns the kinds that OLM installs from a bundle in every supported release (OLM's documentation, "Packaging
// additional objects"). OLM refuses a bundle with other kinds. The value is true for kinds with a namespace.
func bundled() map[string]bool {
	return map[string]bool{
		"ConfigMap": true, "CustomResourceDefinition": false, "ClusterRole": false, "ClusterRoleBinding": false,
		"PodDisruptionBudget": true, "PriorityClass": false, "PrometheusRule": true, "Role": true, "RoleBinding": true,
		"Secret": true, "Service": true, "ServiceAccount": true, "ServiceMonitor": true,
	}
}

// csv holds the fields of a ClusterServiceVersion that OLM needs for the installation.
type csv struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Replaces string `json:"replaces"`
		Install  struct {
			Spec struct {
				ClusterPermissions, Permissions []struct {
					ServiceAccountName string
					Rules              []rbacv1.PolicyRule
				}
				Deployments []struct {
					Name  string
					Label map[string]string
					Spec  appsv1.DeploymentSpec
				}
			}
		}
	}
}

// InstallBundle installs a bundle by OLM's rules for registry+v1, like a Subscription in an OperatorGroup of one
// namespace. It creates the suggested namespace, the bundle's other objects, the rights of the ServiceAccounts in the
// ClusterServiceVersion, the Deployment, and the OperatorCondition. It moves objects with a namespace to the suggested
// namespace. It refuses objects of unsupported kinds. It deletes the rights of the replaced ClusterServiceVersion. It
// applies nothing else. It returns the name of the ClusterServiceVersion and the container of the Deployment.
func InstallBundle(ctx context.Context, config *rest.Config, dir string) (name string, _ corev1.Container, err error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return "", corev1.Container{}, err
	}
	if _, err = cluster.InstallCRDs(ctx, config,
		cluster.CRDOptions{Paths: []string{filepath.Join(root, "lab", "openshift", "olm")}}); err != nil {
		return "", corev1.Container{}, fmt.Errorf("installing OLM's types: %w", err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return "", corev1.Container{}, fmt.Errorf("making a client: %w", err)
	}
	version, objects, err := readBundle(dir)
	if err != nil {
		return "", corev1.Container{}, fmt.Errorf("reading the bundle: %w", err)
	}
	namespace := &unstructured.Unstructured{}
	if err = json.Unmarshal([]byte(version.Metadata.Annotations["operatorframework.io/suggested-namespace-template"]),
		&namespace.Object); err != nil {
		return "", corev1.Container{}, fmt.Errorf("reading the suggested namespace: %w", err)
	}
	objects = append([]*unstructured.Unstructured{namespace}, objects...)
	installed, err := version.installs(namespace.GetName())
	if err != nil {
		return "", corev1.Container{}, err
	}
	for _, object := range append(objects, installed...) {
		if bundled()[object.GetKind()] {
			object.SetNamespace(namespace.GetName())
		}
		if err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.ForceOwnership,
			client.FieldOwner("olm")); err != nil {
			return "", corev1.Container{}, fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	if err = version.retire(ctx, c, namespace.GetName()); err != nil {
		return "", corev1.Container{}, err
	}
	deployments := version.Spec.Install.Spec.Deployments
	if len(deployments) != 1 {
		return "", corev1.Container{}, fmt.Errorf("the ClusterServiceVersion has %d Deployments, want 1",
			len(deployments))
	}
	return version.Metadata.Name, deployments[0].Spec.Template.Spec.Containers[0],
		InstallOLM(ctx, config, version.Metadata.Name)
}

// readBundle reads a bundle's directory.
func readBundle(dir string) (csv, []*unstructured.Unstructured, error) {
	data, err := os.ReadFile(filepath.Join(dir, "metadata", "annotations.yaml"))
	if err != nil {
		return csv{}, nil, err
	}
	if !bytes.Contains(data, []byte("mediatype.v1: registry+v1")) {
		return csv{}, nil, errors.New("the format of the bundle is not registry+v1")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "manifests", "*.yaml"))
	if err != nil {
		return csv{}, nil, err
	}
	var version csv
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		if data, err = os.ReadFile(path); err != nil {
			return csv{}, nil, err
		}
		object := &unstructured.Unstructured{}
		if err = yaml.Unmarshal(data, &object.Object); err != nil {
			return csv{}, nil, fmt.Errorf("%s: %w", path, err)
		}
		if object.GetKind() == "ClusterServiceVersion" {
			if err = yaml.Unmarshal(data, &version); err != nil {
				return csv{}, nil, fmt.Errorf("%s: %w", path, err)
			}
			continue
		}
		if _, may := bundled()[object.GetKind()]; !may {
			return csv{}, nil, fmt.Errorf("%s: OLM can't install the kind %s from a bundle", path, object.GetKind())
		}
		objects = append(objects, object)
	}
	// CRDs and ServiceAccounts come before the objects that refer to them
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		first := func(o *unstructured.Unstructured) int {
			if o.GetKind() == "CustomResourceDefinition" {
				return 0
			}
			return 1
		}
		return first(a) - first(b)
	})
	if version.Metadata.Name == "" {
		return csv{}, nil, errors.New("the bundle has no ClusterServiceVersion")
	}
	return version, objects, nil
}

// The method installs returns the rights in a ClusterServiceVersion, the ServiceAccounts that get them, and its
// Deployments. The lab has no kubelet that starts the Deployments' pods.
func (v csv) installs(namespace string) ([]*unstructured.Unstructured, error) {
	labels := map[string]string{ownerLabel: v.Metadata.Name}
	var typed []runtime.Object
	for i, p := range v.Spec.Install.Spec.Permissions {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", v.Metadata.Name, i), Labels: labels}
		typed = append(typed, account(namespace, p.ServiceAccountName),
			&rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: meta, Rules: p.Rules},
			&rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: meta,
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
				Subjects: subjects(namespace, p.ServiceAccountName)})
	}
	for i, p := range v.Spec.Install.Spec.ClusterPermissions {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", v.Metadata.Name, i), Labels: labels}
		typed = append(typed, account(namespace, p.ServiceAccountName),
			&rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: meta, Rules: p.Rules},
			&rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: meta,
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
				Subjects: subjects(namespace, p.ServiceAccountName)})
	}
	for _, d := range v.Spec.Install.Spec.Deployments {
		typed = append(typed, &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.Name, Labels: d.Label}, Spec: d.Spec})
	}
	all := make([]*unstructured.Unstructured, len(typed))
	for i, object := range typed {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		all[i] = &unstructured.Unstructured{Object: content}
	}
	return all, nil
}

func kind(name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: name}
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: rbacv1.ServiceAccountKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func subjects(namespace, name string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
}

// retire deletes the rights that OLM created for the replaced ClusterServiceVersion.
func (v csv) retire(ctx context.Context, c client.Client, namespace string) error {
	if v.Spec.Replaces == "" {
		return nil
	}
	old := client.MatchingLabels{ownerLabel: v.Spec.Replaces}
	return errors.Join(
		c.DeleteAllOf(ctx, &rbacv1.RoleBinding{}, client.InNamespace(namespace), old),
		c.DeleteAllOf(ctx, &rbacv1.Role{}, client.InNamespace(namespace), old),
		c.DeleteAllOf(ctx, &rbacv1.ClusterRoleBinding{}, old),
		c.DeleteAllOf(ctx, &rbacv1.ClusterRole{}, old))
}
