package join

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// eventRetry is the time until the next check. Normally, an event comes earlier.
	eventRetry = 20 * time.Second
	// waitLimit is how long a host may keep its join slot while it waits for its Node or certificate. While calls of
	// the API server fail, the host may keep the slot for twice this time.
	waitLimit = 5 * time.Minute
)

// maxCredentials is the maximum number of token IDs in the status. Tokens of earlier attempts still matter: kubelet may
// wait for the certificate that it requested with such a token.
const maxCredentials = 4

// bootstrap drains a node in service, starts containerd and kubelet on the host, and submits the daemon's certificate
// request. If the API server does not accept this request, the next call of bootstrap submits it again, without calling
// the host.
func (j *Join) bootstrap(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) (outcome journey.Outcome) {
	if session.Request == nil {
		if !slices.Contains(instance.Status.BootstrapCredentials, session.Token.ID) {
			return j.credential(ctx, instance, session)
		}
		if outcome = j.start(ctx, instance, session); !outcome.IsDone() {
			return outcome
		}
	}
	var err error
	if session.CSR, err = j.requestCertificate(ctx, instance, session.Request); err != nil {
		return j.retryInSlot(instance, session, err)
	}
	return outcome
}

// credential creates kubelet's bootstrap token, once the node may be disrupted. It saves the token's ID in the status
// before the host gets the token. So after a restart, the operator recognises kubelet's request and the Node, and knows
// that the join stops the daemon. Don't save the ID before the drain: during a blocked drain, the daemon still runs.
func (j *Join) credential(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	status := &instance.Status
	node, err := j.Nodes.Live(ctx, status.NodeName)
	if err != nil {
		return j.retryInSlot(instance, session, err)
	}
	if node != nil {
		if problem := journey.Foreign(node, instance); problem != nil {
			return journey.Fail(problem)
		}
	}
	if !session.Drained && !journey.IsFirstJoin(status, node) {
		if outcome := j.vacateServing(ctx, instance, session); !outcome.IsDone() {
			return outcome
		}
	}
	token, err := j.Tokens.BootstrapToken(ctx, instance)
	if err != nil {
		return j.retryInSlot(instance, session, fmt.Errorf("creating kubelet's first credential: %w", err))
	}
	session.Token = token
	ids := append(status.BootstrapCredentials, token.ID)
	status.BootstrapCredentials = ids[max(0, len(ids)-maxCredentials):]
	if status.NodeUID = ""; node != nil && node.DeletionTimestamp.IsZero() {
		status.NodeUID = string(node.UID)
	}
	return journey.Outcome{Then: journey.Save}
}

// start starts containerd and kubelet on the host, and saves the daemon's certificate request in the session.
func (j *Join) start(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	request, outcome := j.bootstrapRequest(ctx, instance, session)
	if !outcome.IsDone() {
		return outcome
	}
	answer, err := journey.Call[contract.BootstrapAnswer](ctx, session.Conn, contract.VerbBootstrap, *request)
	if err != nil {
		return journey.Fail(err)
	}
	if answer.NodeName != instance.Status.NodeName {
		return journey.Fail(contract.NewProblem(contract.ReasonHostnameInvalid,
			"the host calls itself %.63q now, and %q before", answer.NodeName, instance.Status.NodeName))
	}
	if err = policy.CheckDaemonRequest(answer.DaemonCSR, instance.Status.NodeName); err != nil {
		return journey.Fail(contract.NewProblem(contract.ReasonDaemonCallFailed,
			"the certificate request of %s is not submitted: "+
				"%v", instance.Spec.Address, err))
	}
	session.Request, session.FailingSince = answer.DaemonCSR, time.Time{}
	if answer.ClearedKeys {
		return journey.Done().With(journey.KeysDeletedEvent(instance))
	}
	return journey.Done()
}

func (j *Join) bootstrapRequest(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) (*contract.BootstrapRequest, journey.Outcome) {
	desired, facts, err := j.Revisions.Of(ctx, instance)
	if err != nil {
		return nil, journey.WaitForCluster(err)
	}
	kubeconfig, err := bootstrapKubeconfig(facts, session.Token.Text)
	if err != nil {
		return nil, journey.Fail(err)
	}
	confidential, err := confidentialOf(desired)
	if err != nil {
		return nil, journey.Fail(err)
	}
	return &contract.BootstrapRequest{
		NodeName: instance.Status.NodeName, NodeIP: instance.Spec.NodeIP, Revision: desired.Revision,
		Manifest:     desired.Manifest,
		Confidential: confidential, BootstrapKubeconfig: kubeconfig,
		Register: instance.Status.NodeUID == "", ExternalNetwork: facts.NetworkType == blueprint.NetworkExternal,
	}, journey.Done()
}

// vacateServing drains a node in service. If the drain fails, the node returns to service.
func (j *Join) vacateServing(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	bounds, err := j.CurrentBounds(ctx)
	if err != nil {
		return j.retryInSlot(instance, session, err)
	}
	node, serves, err := j.InService(ctx, instance)
	switch {
	case err != nil:
		return j.retryInSlot(instance, session, err)
	case node == nil, !serves && !instance.Status.HasSlot():
		return journey.Done() // no pods run on the host
	case !instance.Status.HasSlot():
		return journey.Fail(contract.NewProblem(contract.ReasonInProgress,
			"node %s is back, and its host has no slot in the rollout budget", node.Name))
	}
	session.FailingSince = time.Time{} // the time of the drain must not count as a failure of calls
	outcome := j.Evacuate(ctx, instance, node, bounds)
	session.Drained = outcome.IsDone()
	if outcome.IsFailed() {
		if back := j.Nodes.ReturnToService(ctx, node); !back.IsDone() {
			return back
		}
	}
	return outcome
}

// confidentialOf returns the confidential part of a desired state. The daemon can't read this part yet, but containerd
// and kubelet must start with their final proxy and CAs. So the operator sends this part to the host.
func confidentialOf(desired blueprint.Desired) ([]byte, error) {
	if desired.Manifest.Confidential == "" {
		return nil, nil
	}
	data, digest, err := desired.Confidential.Encode()
	if err == nil && digest != desired.Manifest.Confidential {
		err = contract.NewProblem(contract.ReasonManifestInvalid,
			"the digest of the confidential part differs from the digest in the manifest")
	}
	return data, err
}

// bootstrapKubeconfig returns the kubeconfig for kubelet's certificate request.
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
