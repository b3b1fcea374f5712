package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// preflight uploads the daemon's program, which checks the host. Nothing else changes on the host.
func (j *Join) preflight(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	found, facts, outcome := j.ask(ctx, instance, session)
	if !outcome.IsDone() {
		return outcome
	}
	if problem := unfit(instance, found.Facts, facts); problem != nil {
		return journey.Fail(problem)
	}
	if outcome := j.recognise(instance, session, found.Facts, facts); !outcome.IsDone() {
		return outcome
	}
	if facts.Platform.NodeName() != contract.FactHostname {
		if outcome := j.nameOfMachine(ctx, instance); !outcome.IsDone() {
			return outcome
		}
	}
	if found.Running {
		if outcome := j.restore(ctx, instance, session); !outcome.IsDone() || outcome.Then == journey.Confirm {
			return outcome
		}
	}
	if len(found.Problems) > 0 {
		if !found.Joined { // leave no program on a refused host
			if err := session.Conn.RemoveUpload(ctx); err != nil {
				logr.FromContextOrDiscard(ctx).Info("the uploaded daemon stays on a refused host", "detail",
					err.Error())
			}
		}
		return journey.Fail(journey.Joined(found.Problems))
	}
	session.Found = &found
	return journey.Done()
}

func (j *Join) ask(ctx context.Context, instance *v1alpha1.WindowsInstance, session *journey.Session) (
	found contract.PreflightAnswer, facts blueprint.Facts, outcome journey.Outcome) {
	desired, facts, err := j.Revisions.Of(ctx, instance)
	if err != nil {
		return found, facts, journey.WaitForCluster(err)
	}
	daemon, err := j.Access.Upload(ctx, session)
	if err != nil {
		return found, facts, journey.Fail(err)
	}
	request := contract.PreflightRequest{
		Time: j.Now(), Blobs: journey.Blobs(desired.Manifest), Daemon: daemon.Digest, Hostname: instance.Spec.Hostname,
		NodeIP:   instance.Spec.NodeIP,
		NodeName: facts.Platform.NodeName(), VXLANPort: facts.VXLANPort,
		ExternalNetwork: facts.NetworkType == blueprint.NetworkExternal,
	}
	if !isProxied(facts) {
		request.APIServer, request.CA = facts.APIServer, []byte(facts.BootstrapCA)
	}
	found, err = journey.Call[contract.PreflightAnswer](ctx, session.Conn, contract.VerbPreflight, request)
	if err != nil {
		return found, facts, journey.Fail(err)
	}
	return found, facts, journey.Done()
}

// If the CRD was deleted and created again, a host that has already joined gets a new instance. If its Node is Ready at
// the revision that was requested last, restore takes the status from the Node, and changes nothing on the host. If
// another revision is desired, the node waits for its turn in the rollout.
func (j *Join) restore(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	status := &instance.Status
	if journey.HasName(status) {
		return journey.Done()
	}
	node, err := j.Nodes.OursLive(ctx, instance)
	if err != nil {
		return j.retryInSlot(instance, session, err)
	}
	if node == nil {
		return journey.Done()
	}
	revision := node.Annotations[contract.DesiredRevisionAnnotation]
	if revision == "" || !journey.NodeReadyAt(node, revision) {
		return journey.Done()
	}
	status.NodeUID, status.DesiredRevision, status.HeldRevision = string(node.UID), revision, revision
	j.Slots.Release(client.ObjectKeyFromObject(instance))
	session.End()
	return journey.Outcome{Then: journey.Confirm}
}

func (j *Join) hostInfo(session *journey.Session, facts contract.HostFacts) *v1alpha1.HostInfo {
	info := &v1alpha1.HostInfo{
		Hostname: facts.Hostname, MachineID: facts.MachineID, NodeIP: facts.NodeIP,
		Windows: fmt.Sprintf("%s 10.0.%d.%d", facts.ProductName, facts.Build, facts.UBR),
		Time:    new(journey.Seconds(j.Now())),
	}
	if address := session.Conn.Address(); address.IsValid() {
		info.Address = address.String()
	}
	return info
}

func isProxied(facts blueprint.Facts) bool {
	server, err := url.Parse(facts.APIServer)
	if err != nil {
		return false
	}
	proxy, err := facts.Proxy.Func()(server)
	return err == nil && proxy != nil
}

// maxNodeName is the maximum length of a node's name. The names of certificate requests contain it.
const maxNodeName = 200

// recognise records the identity of the host, unless another instance has the same host.
func (j *Join) recognise(instance *v1alpha1.WindowsInstance, session *journey.Session, facts contract.HostFacts,
	cluster blueprint.Facts) journey.Outcome {
	if since := session.RebootTime; !since.IsZero() {
		if session.RebootedBoot == facts.BootID {
			if j.Now().Sub(since) > journey.RebootLimit {
				session.RebootTime = time.Time{} // the next attempt requests another reboot
				return journey.Fail(contract.NewProblem(contract.ReasonRebootTimedOut,
					"the host did not reboot"))
			}
			return journey.Wait(journey.RebootRetry, contract.ReasonRebooting, "the reboot has not begun yet")
		}
		session.RebootTime = time.Time{}
	}
	before := cmp.Or(instance.Status.Host, &v1alpha1.HostInfo{})
	instance.Status.Host = j.hostInfo(session, facts)
	outcome := j.claim(instance, facts, cluster)
	if !outcome.IsDone() && instance.Status.NodeName != "" {
		instance.Status.Host.MachineID = before.MachineID // keep the claimed ID: see Remember
	}
	return outcome
}

// claim claims the host's name and Windows installation. If the claim is refused, the instance keeps its old claims.
func (j *Join) claim(instance *v1alpha1.WindowsInstance, facts contract.HostFacts,
	cluster blueprint.Facts) journey.Outcome {
	name := nodeName(instance, facts)
	if name == "" {
		return journey.Fail(contract.NewProblem(contract.ReasonHostnameInvalid, "the host has no name"))
	}
	if len(name) > maxNodeName || !policy.IsNodeName(name) {
		return journey.Fail(contract.NewProblem(contract.ReasonHostnameInvalid, "%.63q can't be a node name", name))
	}
	if instance.Status.NodeName != "" && instance.Status.NodeName != name && journey.HasName(&instance.Status) {
		return journey.Fail(contract.NewProblem(contract.ReasonHostnameInvalid,
			"the host was renamed from %q to %q after it had become a node, or had got a credential for that name",
			instance.Status.NodeName, name))
	}
	by := claimant(instance, facts, cluster)
	if owner, ok := j.Claims.Claim(name, by); !ok {
		return journey.Fail(j.duplicate(instance, name, by, owner))
	}
	instance.Status.NodeName = name
	return journey.Done()
}

func claimant(instance *v1alpha1.WindowsInstance, facts contract.HostFacts, cluster blueprint.Facts) journey.Claimant {
	return journey.Claimant{UID: instance.UID, Key: client.ObjectKeyFromObject(instance), MachineID: facts.MachineID,
		Hostname: cmp.Or(instance.Spec.Hostname, facts.Hostname),
		// hybrid-overlay-node finds its own Node by the Node's field machineID, which contains the host name.
		IsSole: cluster.NetworkType == blueprint.NetworkOVNKubernetes}
}

// duplicate returns the problem that the instances `by` and `owner` have the same host, or hosts with the same name.
func (j *Join) duplicate(instance *v1alpha1.WindowsInstance, name string, by,
	owner journey.Claimant) *contract.Problem {
	if owner.MachineID == by.MachineID {
		return contract.NewProblem(contract.ReasonHostDuplicate,
			"%s, which calls itself %q, is the host that instance %s has already, or a copy of its disk",
			instance.Spec.Address, name, owner.Key.Name)
	}
	if named, _ := j.Claims.Owner(name); named.UID != owner.UID {
		return contract.NewProblem(contract.ReasonHostDuplicate, "the host of instance %s also has the host name %q. "+
			"hybrid-overlay-node recognises its own Node by this name", owner.Key.Name, by.Hostname)
	}
	return contract.NewProblem(contract.ReasonHostDuplicate, "another host, instance %s, already is called %q",
		owner.Key.Name, name)
}

func unfit(instance *v1alpha1.WindowsInstance, host contract.HostFacts, facts blueprint.Facts) *contract.Problem {
	return cmp.Or(nameOfNoHost(instance, host, facts), addressOfNoHost(host, facts))
}

// nameOfNoHost refuses a name that belongs to another machine, such as the API server. kubelet's serving certificate
// contains the name, and on many clusters, clients of the API server trust the CA that signs this certificate. Windows
// host names have no dots. So a name with dots can only come from the cloud, or on vSphere from the host's domain.
func nameOfNoHost(instance *v1alpha1.WindowsInstance, host contract.HostFacts,
	facts blueprint.Facts) *contract.Problem {
	name := nodeName(instance, host)
	if slices.Contains(facts.ReservedNames(), name) {
		return contract.NewProblem(contract.ReasonHostnameInvalid, "%.63q is the API server's name", name)
	}
	if facts.Platform.NodeName() == contract.FactHostname && strings.Contains(name, ".") {
		return contract.NewProblem(contract.ReasonHostnameInvalid, "the host calls itself %.63q, and the name of a "+
			"Windows host has no dots", name)
	}
	return nil
}

// addressOfNoHost refuses an address in the networks of pods or Services: nodes would route packets for the host into
// the cluster's own network. It also refuses the addresses of the API server and of ingress, because kubelet would get
// no serving certificate for them. Exception: a loopback address never leaves the machine.
func addressOfNoHost(host contract.HostFacts, facts blueprint.Facts) *contract.Problem {
	address, _ := netip.ParseAddr(host.NodeIP) // an invalid address is in no network, and preflight reports it
	for what, networks := range map[string][]netip.Prefix{"pods": facts.PodNetworks,
		"Services": facts.ServiceNetworks} {
		for _, network := range networks {
			if network.Contains(address.Unmap()) {
				return contract.NewProblem(contract.ReasonHostInClusterNetwork, "the host's address %s is in %s, "+
					"which the cluster has for %s", address, network, what)
			}
		}
	}
	holds := func(network netip.Prefix) bool { return network.Contains(address.Unmap()) }
	if !address.IsLoopback() && slices.ContainsFunc(facts.Reserved(), holds) {
		return contract.NewProblem(contract.ReasonHostInClusterNetwork, "the host's address %s belongs to the API "+
			"server or to ingress", address)
	}
	return nil
}

// If the cloud lists only other names for a host's Machine, nameOfMachine refuses the host's name and releases the
// claim on it. If a Node of another host has this name, the failure says so. nameOfMachine accepts a name that
// spec.hostname determines, or for which the host already has a credential.
func (j *Join) nameOfMachine(ctx context.Context, instance *v1alpha1.WindowsInstance) journey.Outcome {
	source, name := instance.Spec.Source, instance.Status.NodeName
	if instance.Spec.Hostname != "" || source == nil || source.Kind != v1alpha1.SourceMachine ||
		journey.HasName(&instance.Status) {
		return journey.Done()
	}
	var names []string
	for _, known := range instance.Spec.Addresses {
		if _, err := netip.ParseAddr(known); err != nil {
			names = append(names, strings.ToLower(known))
		}
	}
	is := func(known string) bool { return known == name || strings.HasPrefix(known, name+".") }
	if len(names) == 0 || slices.ContainsFunc(names, is) {
		return journey.Done()
	}
	node, err := j.Nodes.Get(ctx, name)
	if err != nil {
		return journey.Retry(err)
	}
	j.Claims.Forget(instance.UID)
	instance.Status.NodeName = ""
	if node != nil {
		if problem := journey.Foreign(node, instance); problem != nil {
			return journey.Fail(problem)
		}
	}
	return journey.Fail(contract.NewProblem(contract.ReasonHostnameInvalid, "the host's name is %.63q, and the "+
		"cloud calls Machine %s %.200q", name, source.Name, names))
}

// nodeName returns the name of the host's Node: spec.hostname with the domain of the host, or else the host's own name.
func nodeName(instance *v1alpha1.WindowsInstance, facts contract.HostFacts) string {
	name, full := cmp.Or(instance.Spec.Hostname, facts.NodeName, facts.Hostname), facts.NodeName
	if strings.HasPrefix(full, name+".") {
		name = full
	}
	return strings.ToLower(name)
}

// prepare makes the changes that need a reboot, and reboots the host.
func (j *Join) prepare(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	if session.Found == nil {
		return restart()
	}
	if len(session.Found.NeedsPrepare) == 0 {
		return journey.Done()
	}
	if !session.IsGranted {
		return journey.Outcome{Then: journey.TakeSlot}
	}
	_, facts, err := j.Revisions.Of(ctx, instance)
	if err != nil {
		return journey.WaitForCluster(err)
	}
	answer, err := journey.Call[contract.PrepareAnswer](ctx, session.Conn, contract.VerbPrepare,
		contract.PrepareRequest{Hostname: instance.Spec.Hostname, NodeName: facts.Platform.NodeName()})
	if err != nil {
		return journey.Fail(err)
	}
	if !answer.Rebooting {
		return journey.Done()
	}
	session.RebootTime, session.RebootedBoot = j.Now(), answer.BootID
	needs := strings.Join(session.Found.NeedsPrepare, ", ")
	session.End()
	j.Slots.Release(client.ObjectKeyFromObject(instance))
	return journey.Wait(journey.RebootRetry, contract.ReasonRebooting, "rebooting for: %s", needs)
}

// restart returns the failure of a phase that lacks the results of earlier phases.
func restart() journey.Outcome {
	return journey.Fail(errors.New("the session lost what preflight had found"))
}
