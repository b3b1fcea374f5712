package acceptance

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// at creates a run on a fake cluster with these objects.
func at(t *testing.T, id string, objects ...client.Object) *run {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	o := Options{Pace: time.Millisecond, Alive: 20 * time.Millisecond, LeaveTimeout: time.Second, Timeout: time.Second}
	return &run{Options: o.defaulted(), id: id, availability: &availability{},
		shown: map[string]bool{}, hostless: map[string]string{},
		client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
}

// later creates another run on the same cluster.
func later(r *run) *run {
	return &run{Options: r.Options, id: "two", availability: r.availability,
		shown: map[string]bool{}, client: r.client}
}

func listOf(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace,
		Name: contract.InstancesConfigMap}, Data: data}
}

// now reads an object, and reports whether it exists.
func now[T client.Object](t *testing.T, r *run, object T) (T, bool) {
	t.Helper()
	err := r.client.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return object, !apierrors.IsNotFound(err)
}

func TestA76_OnlyEntriesWithAMarkAreRemovedAndOnlyAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	r := at(t, "one", listOf(map[string]string{"10.0.0.1": "username=user"}))
	if err := listEntries(t.Context(), r, map[string]string{"10.0.0.2": someone, "10.0.0.3": someone}); err != nil {
		t.Fatal(err)
	}
	if verdict, _ := judge(listEntries(t.Context(), r, map[string]string{"10.0.0.1": someone})); verdict != Unshown {
		t.Errorf("the run used an entry of the user: %s", verdict)
	}
	list, _ := now(t, r, listOf(nil))
	list.Data["10.0.0.3"] = "username=changed" // the user has changed it since
	if err := r.client.Update(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	two := later(r) // cleans up after the first run
	if _, err := sweep(t.Context(), two, false); err != nil {
		t.Fatal(err)
	}
	list, _ = now(t, r, listOf(nil))
	want := map[string]string{"10.0.0.1": "username=user", "10.0.0.3": "username=changed"}
	if !maps.Equal(list.Data, want) {
		t.Errorf("windows-instances has %v, want %v", list.Data, want)
	}
	if len(list.Annotations) > 0 {
		t.Errorf("the marks of the run were not removed: %v", list.Annotations)
	}
}

func TestA76_AListThatARunCreatedGoesUnlessSomebodyUsesIt(t *testing.T) {
	t.Parallel()
	for _, used := range []bool{false, true} {
		r := at(t, "one")
		if err := listEntries(t.Context(), r, map[string]string{"10.0.0.2": someone}); err != nil {
			t.Fatal(err)
		}
		if list, _ := now(t, r, listOf(nil)); used {
			list.Data["10.0.0.9"] = "username=user"
			if err := r.client.Update(t.Context(), list); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := sweep(t.Context(), r, true); err != nil {
			t.Fatal(err)
		}
		list, there := now(t, r, listOf(nil))
		if there != used || used && (len(list.Labels) > 0 || len(list.Data) != 1) {
			t.Errorf("someone uses windows-instances: %t; it exists: %t, labels %v, data %v", used, there, list.Labels,
				list.Data)
		}
	}
}

func TestA76_ASettingIsRestoredByALaterRunUnlessSomebodyChangedIt(t *testing.T) {
	t.Parallel()
	mirrors := changed{Field: "mirrors", Set: map[string]any{"imageDigestMirrors": []any{
		map[string]any{"source": "a.invalid/b"}}}}
	for _, theirs := range []bool{false, true} {
		settings := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
		settings.Spec.Proxy.HTTPProxy = "http://proxy.invalid"
		r := at(t, "one", settings)
		record := r.record()
		record.Annotations[aliveAnnotation] = time.Unix(0, 0).Format(time.RFC3339Nano) // the run was killed long ago
		if err := r.client.Create(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		if err := setField(t.Context(), r, mirrors); err != nil {
			t.Fatal(err)
		}
		settings, _ = now(t, r, settings)
		if len(settings.Spec.Mirrors.ImageDigestMirrors) != 1 || settings.Spec.Proxy.HTTPProxy == "" {
			t.Fatalf("the settings are %+v", settings.Spec)
		}
		want := 0
		if theirs {
			want = 1
			settings.Spec.Mirrors.ImageDigestMirrors[0].Source = "theirs.example.com"
			if err := r.client.Update(t.Context(), settings); err != nil {
				t.Fatal(err)
			}
		}
		two := later(r)
		if _, err := sweep(t.Context(), two, false); err != nil {
			t.Fatal(err)
		}
		if settings, _ = now(t, r, settings); len(settings.Spec.Mirrors.ImageDigestMirrors) != want ||
			settings.Spec.Proxy.HTTPProxy == "" {
			t.Errorf("changed by the user: %t; the settings are %+v", theirs, settings.Spec)
		}
		if _, there := now(t, r, record); there {
			t.Error("the record of the run was not deleted")
		}
	}
}

func TestA76_ASettingOfTheUsersIsNotReplaced(t *testing.T) {
	t.Parallel()
	settings := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	settings.Spec.Trust.AdditionalCA = "theirs"
	r := at(t, "one", settings)
	ours := changed{Field: "trust", Set: map[string]any{"additionalCA": "ours"}}
	if verdict, why := judge(setField(t.Context(), r, ours)); verdict != Unshown {
		t.Errorf("the row is %s: %s", verdict, why)
	}
	if settings, _ = now(t, r, settings); settings.Spec.Trust.AdditionalCA != "theirs" {
		t.Errorf("the additional CA is %q", settings.Spec.Trust.AdditionalCA)
	}
}

func TestA76_ARunThatIsAtWorkIsNotCleanedUpBehindItsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := at(t, "one")
		r.Alive, r.Pace = time.Minute, time.Second
		stop, err := begin(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		two := later(r)
		if _, err = sweep(t.Context(), two, false); err == nil {
			t.Error("objects of a run that is still alive were removed")
		}
		stop()
		if _, err = sweep(t.Context(), two, false); err != nil {
			t.Errorf("the record of a run that has ended blocks a new run: %v", err)
		}
	})
}

func TestTheManifestsOfRowsAreRead(t *testing.T) {
	t.Parallel()
	r := at(t, "one")
	for _, file := range []string{"workload.yaml", "balancer.yaml", "storage.yaml", "storage-read.yaml", "scale.yaml"} {
		if err := apply(t.Context(), r, "anywhere", file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
