package bootstrap

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/windows-nodes/wmco/api/bootstrap/v1alpha1"
	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

const space = "team"

func reconciler(t *testing.T, objects ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := bootstrapv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &Reconciler{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&bootstrapv1.WindowsConfig{}).Build(), connect: connect, namespace: "operator"}
}

func cluster(initialized bool) *unstructured.Unstructured {
	c := ofKind("Cluster")
	c.SetNamespace(space)
	c.SetName("c")
	c.Object["status"] = map[string]any{"initialization": map[string]any{"controlPlaneInitialized": initialized}}
	return c
}

func config() *bootstrapv1.WindowsConfig {
	return &bootstrapv1.WindowsConfig{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "m", UID: "u",
		Labels: map[string]string{clusterNameLabel: "c"}}}
}

// kubeconfig returns the Secret in which Cluster API stores the kubeconfig of a cluster. user is the content of the
// field user.
func kubeconfig(user string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "c-kubeconfig"},
		Data: map[string][]byte{"value": []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],
		"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":` + user + `}]}`)}}
}

// A user who can write the Secret must not be able to make the provider run a program, or send a file of the provider's
// pod to a server.
func TestA87_AKubeconfigThatNamesAFileOrAProgramIsRefused(t *testing.T) {
	t.Parallel()
	pem := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\n"))
	for user, accepted := range map[string]bool{
		`{"token":"t"}`: true,
		`{"tokenFile":"/var/run/secrets/kubernetes.io/serviceaccount/token"}`:                               false,
		`{"tokenFile":"/is/refused/before/it/is/read"}`:                                                     false,
		`{"client-certificate":"/etc/hosts","client-key-data":"` + pem + `"}`:                               false,
		`{"client-certificate-data":"` + pem + `","client-key":"/etc/hosts"}`:                               false,
		`{"auth-provider":{"name":"oidc"}}`:                                                                 false,
		`{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"x","interactiveMode":"Never"}}`: false,
	} {
		r := reconciler(t, kubeconfig(user))
		_, err := connect(t.Context(), r.client, cluster(true))
		if accepted != (err == nil) || err != nil && !strings.Contains(err.Error(), "names a file or a program") {
			t.Errorf("%s: %v", user, err)
		}
	}
}

func TestA87_TheCommandIsWrappedForTheProgramThatRunsIt(t *testing.T) {
	t.Parallel()
	for format, want := range map[bootstrapv1.UserDataFormat][2]string{
		"":                              {"#ps1_sysnative\ncommand\n", "-Value success\n"},
		bootstrapv1.FormatCloudbaseInit: {"#ps1_sysnative\ncommand\n", "-Value success\n"},
		bootstrapv1.FormatEC2Launch:     {"<powershell>\ncommand\n", "-Value success\n</powershell>\n"},
		bootstrapv1.FormatPlain:         {"command\n", "-Value success\n"},
	} {
		text := userData(format, "command")
		if !strings.HasPrefix(text, want[0]) || !strings.HasSuffix(text, want[1]) ||
			!strings.Contains(text, `C:\run\cluster-api\bootstrap-success.complete`) {
			t.Errorf("%q: %q", format, text)
		}
	}
}

// reconcile reconciles the WindowsConfig m. It returns the condition ConfigReady and the WindowsConfig. Both are nil if
// the WindowsConfig does not exist afterwards.
func (r *Reconciler) reconcile(t *testing.T) (*metav1.Condition, *bootstrapv1.WindowsConfig) {
	t.Helper()
	key := client.ObjectKey{Namespace: space, Name: "m"}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	c := &bootstrapv1.WindowsConfig{}
	if err := r.client.Get(t.Context(), key, c); err != nil {
		return nil, nil
	}
	return meta.FindStatusCondition(c.Status.Conditions, bootstrapv1.ConditionConfigReady), c
}

// If an earlier Machine had the same name, its Secret contains a command that is no longer valid.
func TestA87_ASecretOfAnotherObjectIsNotBootstrapData(t *testing.T) {
	t.Parallel()
	command := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "operator", Name: contract.JoinSecretPrefix + "i"},
		Data: map[string][]byte{contract.JoinCommandField: []byte("join")}}
	for owner, reason := range map[types.UID]string{"u": reasonDataCreated, "earlier": reasonNameTaken} {
		owned := config()
		owned.UID = owner
		existing := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "m",
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(owned, bootstrapv1.GroupVersion().WithKind("WindowsConfig"))}}}
		r, _ := withWorkload(t, config(), instanceOf("u"), command)
		if err := r.client.Create(t.Context(), existing); err != nil {
			t.Fatal(err)
		}
		r.reconcile(t) // adds the finalizer
		if ready, _ := r.reconcile(t); ready == nil || ready.Reason != reason {
			t.Errorf("with the Secret of %s, Ready is %+v, want the reason %s", owner, ready, reason)
		}
	}
}

func TestA87_AWindowsConfigSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	paused, deleted := config(), config()
	paused.Annotations = map[string]string{pausedAnnotation: ""}
	deleted.Finalizers, deleted.DeletionTimestamp = []string{finalizer}, &metav1.Time{Time: metav1.Now().Time}
	for name, test := range map[string]struct {
		objects []client.Object
		reason  string
		kept    bool
	}{
		"no cluster":            {[]client.Object{config()}, "", true},
		"no control plane":      {[]client.Object{config(), cluster(false)}, reasonWaiting, true},
		"paused":                {[]client.Object{paused, cluster(true)}, "", true},
		"no kubeconfig":         {[]client.Object{config(), cluster(true)}, reasonClusterUnusable, true},
		"the cluster is away":   {[]client.Object{config(), cluster(true), kubeconfig(`{"token":"t"}`)}, reasonClusterUnusable, true},
		"deleted, and away":     {[]client.Object{deleted, cluster(true), kubeconfig(`{"token":"t"}`)}, reasonClusterUnusable, true},
		"gone with a cluster":   {[]client.Object{deleted}, "", false},
		"gone, not initialized": {[]client.Object{deleted, cluster(false)}, reasonClusterUnusable, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := reconciler(t, test.objects...)
			r.reconcile(t) // adds the finalizer
			ready, found := r.reconcile(t)
			if (found != nil) != test.kept {
				t.Fatalf("the WindowsConfig is %v", found)
			}
			if (ready == nil) != (test.reason == "") || ready != nil && (ready.Reason != test.reason || ready.Message == "" ||
				ready.Status != metav1.ConditionFalse) {
				t.Errorf("Ready is %+v, want the reason %q", ready, test.reason)
			}
		})
	}
}

func TestA87_TheVersionOfKubeletIsComparedWithTheMachine(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		wanted, reported string
		state            metav1.ConditionStatus
	}{
		{"v1.36.0", "v1.36.3", metav1.ConditionTrue},
		{"v1.35.9", "v1.36.3", metav1.ConditionFalse},
		{"v1.36.0", "junk", metav1.ConditionFalse},
		{"", "v1.36.3", ""},
	} {
		c := config()
		compare(c, test.wanted, test.reported)
		found := meta.FindStatusCondition(c.Status.Conditions, bootstrapv1.ConditionVersionMatches)
		if (found == nil) != (test.state == "") || found != nil && found.Status != test.state {
			t.Errorf("%+v: %+v", test, found)
		}
	}
}

// withWorkload returns a Reconciler whose workload cluster contains the objects, and a client of this workload cluster.
func withWorkload(t *testing.T, own *bootstrapv1.WindowsConfig, objects ...client.Object) (*Reconciler, client.Client) {
	t.Helper()
	workload := reconciler(t, objects...).client
	machine := ofKind("Machine")
	machine.SetNamespace(space)
	machine.SetName("m")
	machine.SetUID("machine")
	machine.Object["spec"] = map[string]any{"providerID": "lab://m"}
	own.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "m",
		UID: "machine", Controller: new(true)}}
	r := reconciler(t, own, cluster(true), machine)
	r.connect = func(context.Context, client.Client, client.Object) (client.Client, error) { return workload, nil }
	return r, workload
}

// instanceOf returns the WindowsInstance m that the provider created for the WindowsConfig with the UID uid.
func instanceOf(uid string) *v1alpha1.WindowsInstance {
	return &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "operator", Name: "m", UID: "i",
		Finalizers:  []string{"test/keep"},
		Annotations: map[string]string{contract.BootstrapConfigAnnotation: uid}},
		Status: v1alpha1.WindowsInstanceStatus{NodeName: "m", NodeUID: "n"}}
}

func TestA87_ACommandBecomesTheBootstrapDataOfItsOwnHost(t *testing.T) {
	t.Parallel()
	command := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "operator", Name: contract.JoinSecretPrefix + "i"},
		Data: map[string][]byte{contract.JoinCommandField: []byte("join")}}
	for name, test := range map[string]struct {
		objects []client.Object
		reason  string
	}{
		"no command yet":  {[]client.Object{instanceOf("u")}, reasonCommandAwaited},
		"another Machine": {[]client.Object{instanceOf("earlier"), command}, reasonNameTaken},
		"its own":         {[]client.Object{instanceOf("u"), command}, reasonDataCreated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := withWorkload(t, config(), test.objects...)
			r.reconcile(t) // adds the finalizer
			ready, found := r.reconcile(t)
			if ready == nil || ready.Reason != test.reason {
				t.Fatalf("Ready is %+v, want the reason %s", ready, test.reason)
			}
			if hasData := found.Status.DataSecretName != ""; hasData != (test.reason == reasonDataCreated) {
				t.Errorf("the status names the Secret %q", found.Status.DataSecretName)
			}
			secret := &corev1.Secret{}
			err := r.client.Get(t.Context(), client.ObjectKeyFromObject(found), secret)
			if (err == nil) != (test.reason == reasonDataCreated) ||
				err == nil && !strings.Contains(string(secret.Data["value"]), "\njoin\n") {
				t.Errorf("the bootstrap data is %q, %v", secret.Data["value"], err)
			}
		})
	}
}

// If a Node has a provider ID, a cloud provider ignores the Node and doesn't remove its taint.
func TestA87_TheProviderIDIsSetUnlessACloudProviderSetsIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		uid, taint, before, after string
	}{
		"no cloud provider": {"n", "", "", "lab://m"},
		"a cloud provider":  {"n", cloudTaint, "", ""},
		"already set":       {"n", "", "cloud://m", "cloud://m"},
		"another node":      {"other", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: types.UID(test.uid)},
				Spec: corev1.NodeSpec{ProviderID: test.before}}
			if test.taint != "" {
				node.Spec.Taints = []corev1.Taint{{Key: test.taint, Effect: corev1.TaintEffectNoSchedule}}
			}
			own := config()
			own.Finalizers, own.Status.DataSecretName = []string{finalizer}, "m"
			r, workload := withWorkload(t, own, instanceOf("u"), node)
			r.reconcile(t)
			if err := workload.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
				t.Fatal(err)
			}
			if node.Spec.ProviderID != test.after {
				t.Errorf("the provider ID is %q, want %q", node.Spec.ProviderID, test.after)
			}
		})
	}
}

func TestA87_ADeletedWindowsConfigDeletesOnlyItsOwnInstance(t *testing.T) {
	t.Parallel()
	for _, uid := range []string{"u", "another"} {
		deleted := config()
		deleted.Finalizers, deleted.DeletionTimestamp = []string{finalizer}, &metav1.Time{Time: metav1.Now().Time}
		r, workload := withWorkload(t, deleted, instanceOf(uid))
		if _, found := r.reconcile(t); found != nil {
			t.Errorf("%s: the WindowsConfig still exists", uid)
		}
		instance := instanceOf(uid)
		if err := workload.Get(t.Context(), client.ObjectKeyFromObject(instance), instance); err != nil {
			t.Fatal(err)
		}
		isDiscarded := instance.DeletionTimestamp != nil && instance.Spec.RemovalPolicy == v1alpha1.RemovalDiscard
		isUntouched := instance.DeletionTimestamp == nil && instance.Spec.RemovalPolicy == ""
		if isOwn := uid == "u"; isOwn && !isDiscarded || !isOwn && !isUntouched {
			t.Errorf("the instance of %s: deleted %v, policy %q", uid, instance.DeletionTimestamp,
				instance.Spec.RemovalPolicy)
		}
	}
}
