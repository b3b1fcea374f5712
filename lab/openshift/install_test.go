package openshift_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/openshift"
	"github.com/windows-nodes/wmco/lab/plane"
)

func TestAPlainClusterBecomesOpenShift(t *testing.T) {
	t.Parallel()
	lab := plane.Start(t, cluster.Options{})
	options := openshift.Options{APIServer: lab.URL, CA: lab.CAPEM}
	for range 2 {
		if err := openshift.Install(t.Context(), lab.Admin(), options); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- openshift.AssignSubnets(ctx, lab.Admin()) }()
	clients, err := kubernetes.NewForConfig(lab.Admin())
	if err != nil {
		t.Fatal(err)
	}
	subnets := map[string]bool{}
	for _, name := range []string{"win-a", "win-b"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{corev1.LabelOSStable: "windows"}}}
		if _, err = clients.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true,
			func(ctx context.Context) (bool, error) {
				node, err := clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return false, err
				}
				subnet := node.Annotations[contract.HybridSubnetAnnotation]
				subnets[subnet] = true
				return subnet != "", nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	delete(subnets, "")
	if len(subnets) != 2 {
		t.Errorf("two nodes have the subnets %v", subnets)
	}
	cancel()
	if err = <-ended; err != nil {
		t.Error(err)
	}
}

func TestOLMHasAConditionForTheOperatorAlone(t *testing.T) {
	t.Parallel()
	lab := plane.Start(t, cluster.Options{})
	clients, err := kubernetes.NewForConfig(lab.Admin())
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: contract.OperatorNamespace}}
	if _, err = clients.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: contract.OperatorServiceAccount}}
	if _, err = clients.CoreV1().ServiceAccounts(contract.OperatorNamespace).Create(t.Context(), account,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err = openshift.InstallOLM(t.Context(), lab.Admin(), "wmco.v0.1.0"); err != nil {
			t.Fatal(err)
		}
	}
	config, _, err := lab.ServiceAccountConfig(t.Context(), contract.OperatorNamespace, contract.OperatorServiceAccount,
		time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	operator, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	condition := &unstructured.Unstructured{}
	condition.SetGroupVersionKind(openshift.OperatorCondition())
	key := client.ObjectKey{Namespace: contract.OperatorNamespace, Name: "wmco.v0.1.0"}
	if err = operator.Get(t.Context(), key, condition); err != nil {
		t.Fatal(err)
	}
	for status, valid := range map[string]bool{"True": true, "Perhaps": false} {
		changed := condition.DeepCopy()
		said := map[string]any{"type": "Upgradeable", "status": status, "reason": "upgradeIsSafe", "message": "",
			"lastTransitionTime": "2026-01-01T00:00:00Z"}
		if err = unstructured.SetNestedSlice(changed.Object, []any{said}, "spec", "conditions"); err != nil {
			t.Fatal(err)
		}
		if err = operator.Update(t.Context(), changed, client.DryRunAll); (err == nil) != valid {
			t.Errorf("%s: %v", status, err)
		}
	}
	if err = operator.Get(t.Context(), client.ObjectKey{Namespace: contract.OperatorNamespace, Name: "another"},
		condition); !apierrors.IsForbidden(err) {
		t.Errorf("a request for another name was approved: %v", err)
	}
}
