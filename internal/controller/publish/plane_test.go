package publish_test

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/publish"
	"github.com/windows-nodes/wmco/internal/payload"
	labcluster "github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/openshift"
	labplane "github.com/windows-nodes/wmco/lab/plane"
	"github.com/windows-nodes/wmco/lab/scheme"
)

const operatorUser = "system:serviceaccount:" + contract.OperatorNamespace + ":" + contract.OperatorServiceAccount

// plane is a real API server with the objects of OpenShift. The controllers run with the rights that the markers in
// their packages request.
type plane struct {
	lab    *labcluster.Cluster
	admin  client.Client
	source *publish.Source
	// payload is the operator's payload, or nil for standIn. version returns the version that the API server reports,
	// or nil for the real version.
	payload *payload.Manifest
	version cluster.Versioner
}

// startPlane starts everything except the controllers. If withOpenShift is false, the cluster has no OpenShift objects.
func startPlane(t *testing.T, withOpenShift bool) *plane {
	t.Helper()
	lab := labplane.Start(t, labcluster.Options{Audit: true})
	if withOpenShift {
		if err := openshift.Install(t.Context(), lab.Admin(),
			openshift.Options{APIServer: lab.URL, CA: lab.CAPEM}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := labcluster.InstallCRDs(t.Context(), lab.Admin(),
		labcluster.CRDOptions{Paths: []string{filepath.Join("..", "..", "..", "config", "crd")}}); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(lab.Admin(), client.Options{Scheme: scheme.New(t, cluster.AddToScheme)})
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{lab: lab, admin: admin}
	p.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: contract.OperatorNamespace}})
	p.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace,
		Name: contract.OperatorServiceAccount}})
	p.create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: contract.ServicesReaderRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: contract.ServicesReaderRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: contract.DaemonGroup}},
	})
	p.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "windows-node-bootstrapper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: contract.OperatorNamespace,
			Name: contract.BootstrapServiceAccount}},
	})
	if !withOpenShift {
		p.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigNamespace}})
		p.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: contract.ConfigNamespace}})
	}
	for _, o := range rights(t, "doc.go", filepath.Join("..", "..", "cluster", "doc.go")) {
		p.create(t, o)
	}
	return p
}

func (p *plane) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := p.admin.Create(t.Context(), o); err != nil {
		t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
}

// rights returns the roles that the markers in some files request, and their bindings to the operator.
func rights(t *testing.T, paths ...string) (objects []client.Object) {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			marker, ok := strings.CutPrefix(lines.Text(), "// +kubebuilder:rbac:")
			if !ok {
				continue
			}
			values := map[string][]string{}
			for _, pair := range strings.Split(marker, ",") {
				key, value, _ := strings.Cut(pair, "=")
				values[key] = strings.Split(strings.Trim(value, `"`), ";")
			}
			namespace := strings.Join(values["namespace"], "")
			rules[namespace] = append(rules[namespace], rbacv1.PolicyRule{
				APIGroups: values["groups"], Resources: values["resources"], ResourceNames: values["resourceNames"],
				Verbs: values["verbs"],
			})
		}
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: contract.OperatorNamespace,
		Name: contract.OperatorServiceAccount}}
	for namespace, all := range rules {
		name := metav1.ObjectMeta{Namespace: namespace, Name: "operator"}
		if namespace == "" {
			ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name}
			objects = append(objects, &rbacv1.ClusterRole{ObjectMeta: name, Rules: all},
				&rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: ref, Subjects: subjects})
			continue
		}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name}
		objects = append(objects, &rbacv1.Role{ObjectMeta: name, Rules: all},
			&rbacv1.RoleBinding{ObjectMeta: name, RoleRef: ref, Subjects: subjects})
	}
	return objects
}

// standIn returns a payload with all files that every node needs.
func standIn() payload.Manifest {
	var m payload.Manifest
	for i, path := range []string{
		contract.PathKubelet, contract.PathKubeLogRunner, contract.PathContainerd, contract.PathContainerdShim,
		contract.PathDaemon,
	} {
		m.Files = append(m.Files, payload.File{
			Name: path[strings.LastIndex(path, `\`)+1:], Version: "v1.36.3", Size: 10,
			Digest: strings.Repeat(string("abcdef"[i]), 64), Path: path,
		})
	}
	return m
}

// run starts the controllers with the operator's account. They run until the test ends.
func (p *plane) run(t *testing.T, grace time.Duration) {
	t.Helper()
	config, _, err := p.lab.ServiceAccountConfig(t.Context(), contract.OperatorNamespace,
		contract.OperatorServiceAccount, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	// The reader of facts must exist before the manager, because the manager needs its list of objects to cache. The
	// reader gets its clients from the manager later.
	byObject := publish.CacheByObject(contract.OperatorNamespace, cluster.Inputs(contract.OperatorNamespace))
	byObject[&v1alpha1.WindowsMachineConfig{}] = cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, contract.MachineConfigObject)}
	byObject[&v1alpha1.WindowsInstance{}] = cache.ByObject{Namespaces: map[string]cache.Config{contract.OperatorNamespace: {}}}
	skip := true
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.New(t, cluster.AddToScheme), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cache.Options{ByObject: byObject}, NewCache: publish.NewCache,
		Controller: ctrlconfig.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		t.Fatal(err)
	}
	shipped, version := standIn(), p.version
	if p.payload != nil {
		shipped = *p.payload
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if version == nil {
		version = clients.Discovery()
	}
	reader, err := cluster.NewReader(cluster.Options{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Version: version,
		Namespace: contract.OperatorNamespace, Access: clients.AuthorizationV1().SubjectAccessReviews()})
	if err != nil {
		t.Fatal(err)
	}
	p.source, err = publish.Setup(mgr, publish.Options{
		Namespace: contract.OperatorNamespace, Facts: reader, Payload: shipped, Logging: blueprint.DefaultLogging(), OperatorVersion: "0.1.0",
		Grace: grace, Now: time.Now, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
}

// eventually polls until ask returns true. It fails the test after half a minute.
func eventually(t *testing.T, what string, ask func(ctx context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, ask); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// current waits until the current revision is not the given one, and returns it.
func (p *plane) current(t *testing.T, not string) (desired blueprint.Desired) {
	t.Helper()
	eventually(t, "waiting for a published version", func(ctx context.Context) (bool, error) {
		var err error
		desired, _, err = p.source.Current(ctx)
		return err == nil && desired.Revision != not, nil
	})
	return desired
}

// manifest returns the ConfigMap of a revision, or nil.
func (p *plane) manifest(ctx context.Context, t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	c := &corev1.ConfigMap{}
	err := p.admin.Get(ctx, client.ObjectKey{Namespace: contract.OperatorNamespace, Name: name}, c)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// restored waits until a new object with the correct content has replaced the ConfigMap of a revision.
func (p *plane) restored(t *testing.T, desired blueprint.Desired, before *corev1.ConfigMap) (c *corev1.ConfigMap) {
	t.Helper()
	eventually(t, "waiting for the manifest to be restored", func(ctx context.Context) (bool, error) {
		if c = p.manifest(ctx, t, desired.ConfigMapName()); c == nil || c.UID == before.UID {
			return false, nil
		}
		m, err := contract.ManifestFromConfigMap(c.Data)
		return err == nil && m.Digest() == desired.Manifest.Digest() && c.Immutable != nil && *c.Immutable, nil
	})
	return c
}

// daemon returns a client with the identity of a node's daemon.
func (p *plane) daemon(t *testing.T) client.WithWatch {
	t.Helper()
	config, err := p.lab.UserConfig(contract.DaemonUserPrefix+"win-1", contract.DaemonGroup)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, config)
}

func newClient(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New(t, cluster.AddToScheme)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// requests returns the operator's requests that match a filter.
func (p *plane) requests(t *testing.T, filter func(r labcluster.Request) bool) (all []labcluster.Request) {
	t.Helper()
	for r, err := range labcluster.Requests(p.lab.AuditLog) {
		if err != nil {
			t.Fatal(err)
		}
		if r.User == operatorUser && filter(r) {
			all = append(all, r)
		}
	}
	return slices.Clip(all)
}
