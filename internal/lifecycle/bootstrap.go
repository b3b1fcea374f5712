package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// eventRetry is how long to wait for something whose arrival is watched.
	eventRetry = 20 * time.Second
	// waitLimit is how long a host may keep its slot while it waits for its Node or certificate;
	// then it makes room for others.
	waitLimit = 5 * time.Minute
)

// maxCredentials is how many bootstrap tokens of one join are remembered: kubelet may still wait
// for what it requested with the one of the attempt before.
const maxCredentials = 4

// credential makes kubelet's first credential. It belongs to the phase before the one that hands it to
// the host: its id is in the saved status then, so that another operator recognises what kubelet
// requests with it.
func (w *Walker) credential(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) Outcome {
	token, err := w.Tokens.BootstrapToken(ctx, instance)
	if err != nil {
		return retry(fmt.Errorf("making kubelet's first credential: %w", err))
	}
	ids := append(instance.Status.BootstrapCredentials, token.ID)
	instance.Status.BootstrapCredentials = ids[max(0, len(ids)-maxCredentials):]
	visit.token = token.Text
	return Done()
}

// bootstrap starts containerd and kubelet on the host and gets the daemon's certificate request.
func (w *Walker) bootstrap(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) Outcome {
	if visit.token == "" {
		return restart()
	}
	desired, facts, err := w.revision(ctx, instance)
	if err != nil {
		return waitForCluster(err)
	}
	node, err := w.node(ctx, instance.Status.NodeName)
	if err != nil {
		return retry(err)
	}
	if node != nil {
		if problem := Foreign(node, instance); problem != nil {
			return Fail(problem)
		}
		if outcome := w.vacateServing(ctx, instance, visit, node); !outcome.IsDone() {
			return outcome
		}
	}
	kubeconfig, err := bootstrapKubeconfig(facts, visit.token)
	if err != nil {
		return Fail(err)
	}
	confidential, err := confidentialOf(desired)
	if err != nil {
		return Fail(err)
	}
	answer, err := call[contract.BootstrapAnswer](ctx, visit.conn, contract.VerbBootstrap, contract.BootstrapRequest{
		NodeName: instance.Status.NodeName, NodeIP: instance.Spec.NodeIP, Version: desired.Version,
		Manifest:     desired.Manifest,
		Confidential: confidential, BootstrapKubeconfig: kubeconfig, BootstrapCA: []byte(facts.BootstrapCA),
		KubeletCA: []byte(facts.KubeletCA),
		Register:  node == nil,
	})
	if err != nil {
		return Fail(err)
	}
	if answer.NodeName != instance.Status.NodeName {
		return Fail(contract.NewProblem(contract.ReasonHostnameInvalid,
			"the host calls itself %.63q now, and %q before", answer.NodeName, instance.Status.NodeName))
	}
	if err = policy.CheckDaemonRequest(answer.DaemonCSR, instance.Status.NodeName); err != nil {
		return Fail(contract.NewProblem(contract.ReasonDaemonCallFailed,
			"the certificate request of %s is not submitted: "+
				"%v", instance.Spec.Address, err))
	}
	visit.request = answer.DaemonCSR
	if visit.csr, err = w.requestCertificate(ctx, instance, visit.request); err != nil {
		return retry(err)
	}
	return Done()
}

// vacateServing moves the pods away from a node that serves and has its turn to be walked into. One
// that can't be emptied goes back into service.
func (w *Walker) vacateServing(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit,
	node *corev1.Node) Outcome {
	if instance.Status.JoinedTime == nil || visit.drained {
		return Done()
	}
	bounds, err := w.bounds(ctx)
	if err != nil {
		return retry(err)
	}
	out := w.IsOut(node, bounds)
	switch {
	case instance.Status.Disruption == nil && out:
		return Done() // nobody is there to be disturbed
	case instance.Status.Disruption == nil:
		return Fail(contract.NewProblem(contract.ReasonInProgress,
			"node %s is back, and its host has no place in the rollout budget", node.Name))
	}
	outcome := w.empty(ctx, instance, &Crossing{Node: node, Bounds: bounds})
	visit.drained = outcome.IsDone()
	if outcome.IsFailed() {
		instance.Status.DrainTime = nil
		if err := w.uncordon(ctx, node); err != nil {
			return retry(err)
		}
	}
	return outcome
}

// confidentialOf is what must not be public of a desired state, for a host that can't read it yet:
// containerd and kubelet start with the proxy and the authorities that they will have.
func confidentialOf(desired blueprint.Desired) ([]byte, error) {
	if desired.Manifest.Confidential == "" {
		return nil, nil
	}
	data, digest, err := desired.Confidential.Encode()
	if err == nil && digest != desired.Manifest.Confidential {
		err = contract.NewProblem(contract.ReasonManifestInvalid,
			"the confidential part is not the one that the manifest names")
	}
	return data, err
}

// bootstrapKubeconfig lets kubelet ask for its certificate.
func bootstrapKubeconfig(facts blueprint.Facts, token string) ([]byte, error) {
	const name = "bootstrap"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: facts.APIServer,
		CertificateAuthorityData: []byte(facts.BootstrapCA)}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing the bootstrap kubeconfig: %w", err)
	}
	return content, nil
}

// node reads a Node through the cache; nil when there is none.
func (w *Walker) node(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := w.Client.Get(ctx, objectKey(name), node)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	return node, nil
}
