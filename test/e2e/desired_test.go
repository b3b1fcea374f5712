package e2e_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/scene"
)

func TestA12_TheManifestIsRestored(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	key := client.ObjectKey{Namespace: contract.OperatorNamespace,
		Name: contract.ServicesConfigMapPrefix + s.instance(t, hosts[0]).Status.Revision}
	first := &corev1.ConfigMap{}
	if err := s.Client.Get(t.Context(), key, first); err != nil {
		t.Fatal(err)
	}
	if first.Immutable == nil || !*first.Immutable {
		t.Error("the manifest is not immutable")
	}
	if _, err := contract.ManifestFromConfigMap(first.Data); err != nil {
		t.Errorf("the manifest can't be parsed: %v", err)
	}
	if err := s.Client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the manifest to be back", func(ctx context.Context) (bool, string, error) {
		again := &corev1.ConfigMap{}
		err := s.Client.Get(ctx, key, again)
		return err == nil && again.UID != first.UID, "", client.IgnoreNotFound(err)
	})
	s.ready(t, hosts...)
}

func TestA14_AServiceThatLeavesTheManifestLeavesTheNodes(t *testing.T) {
	t.Parallel()
	o := options(2)
	whole, lesser := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "lesser")
	if err := scene.WritePayload(whole); err != nil {
		t.Fatal(err)
	}
	if err := scene.WritePayload(lesser, "csi-proxy.exe"); err != nil {
		t.Fatal(err)
	}
	o.Payload, o.Arguments = whole, []string{"--manifest-retention", "1s"}
	s := own(t, o)
	hosts := s.hosts(t, 2)
	s.join(t, hosts...)
	services := hosts[0].Machine.Host().Services
	if _, err := services.Get(t.Context(), contract.ServiceCSIProxy); err != nil {
		t.Fatalf("csi-proxy was not installed, so this test can't fail: %v", err)
	}
	old := s.instance(t, hosts[0]).Status.Revision
	if err := s.Operator.Stop(); err != nil {
		t.Fatal(err)
	}
	s.Operator.SetPayload(lesser)
	if err := s.Operator.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		s.await(t, h.Name+" to reach the new version", func(ctx context.Context) (bool, string, error) {
			i, err := s.Instance(ctx, h)
			if err != nil {
				return false, "", err
			}
			return i.Status.Revision != old &&
					i.Status.Reason() == string(contract.ReasonNodeReady),
				i.Status.Revision + " " + i.Status.Reason() + " " + i.Status.Message(), nil
		})
		names, err := h.Machine.Host().Services.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if name == contract.ServiceCSIProxy {
				t.Errorf("%s: csi-proxy was not removed", h.Name)
			}
		}
	}
	s.await(t, "the operator to delete the old manifest", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.OperatorNamespace,
			Name: contract.ServicesConfigMapPrefix + old}, &corev1.ConfigMap{})
		return apierrors.IsNotFound(err), "", client.IgnoreNotFound(err)
	})
}

func TestASettingReachesNodesWithoutSSH(t *testing.T) {
	t.Parallel()
	s := own(t, options(3))
	hosts := s.hosts(t, 3)
	s.join(t, hosts...)
	old := s.instance(t, hosts[0]).Status.Revision
	spec := *options(0).Settings
	spec.Logging.Debug = true
	if err := s.Configure(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		s.await(t, h.Name+" to reach the new version", func(ctx context.Context) (bool, string, error) {
			i, err := s.Instance(ctx, h)
			if err != nil {
				return false, "", err
			}
			return i.Status.Revision != old &&
					i.Status.Reason() == string(contract.ReasonNodeReady),
				i.Status.Revision + " " + i.Status.Reason() + " " + i.Status.Message(), nil
		})
		if c := h.Server.Counters(); c.Connections != 1 {
			t.Errorf("%s: %d SSH connections, want only the connection of its join", h.Name, c.Connections)
		}
		kubelet, err := h.Machine.Host().Services.Get(t.Context(), contract.ServiceKubelet)
		if err != nil || !strings.Contains(kubelet.Command, "--v=4") || kubelet.State != winos.ServiceRunning {
			t.Errorf("%s: kubelet is %s with the command %s, error %v", h.Name, kubelet.State, kubelet.Command, err)
		}
	}
}

func TestA15_TheVersionAnnotationComesBack(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	pod := s.pod(t, hosts[0], 1)
	want := s.instance(t, hosts[0]).Status.Revision
	for name, edit := range map[string]func(*corev1.Node){
		"removed":      func(n *corev1.Node) { delete(n.Annotations, contract.RevisionAnnotation) },
		"made invalid": func(n *corev1.Node) { n.Annotations[contract.RevisionAnnotation] = "nonsense" },
	} {
		t.Run(name, func(t *testing.T) {
			node := s.node(t, hosts[0])
			patch := client.MergeFrom(node.DeepCopy())
			edit(node)
			if err := s.Client.Patch(t.Context(), node, patch); err != nil {
				t.Fatal(err)
			}
			s.await(t, "the annotation to come back", func(ctx context.Context) (bool, string, error) {
				err := s.Client.Get(ctx, client.ObjectKeyFromObject(node), node)
				return node.Annotations[contract.RevisionAnnotation] == want,
					node.Annotations[contract.RevisionAnnotation], err
			})
			s.ready(t, hosts...)
		})
	}
	again := &corev1.Pod{}
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), again); err != nil || again.UID != pod.UID ||
		again.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod was evicted or deleted: %v", err)
	}
}
