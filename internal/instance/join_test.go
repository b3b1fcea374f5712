package instance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/test/hosttest"
)

func TestA01_AHealthyHostJoinsOverOneConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.desired.Manifest = contract.Manifest{Files: []contract.File{{Path: `C:\k\kubelet.exe`, Digest: digest("kubelet"),
		Size: 7}}}
	w.machine.Answer(contract.VerbPreflight,
		contract.PreflightAnswer{Facts: w.machine.Facts(),
			Missing: []contract.Blob{{Digest: digest("kubelet"), Size: 7}}})
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonNodePending)
	if err := w.client.Create(t.Context(), node()); err != nil {
		t.Fatal(err)
	}
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonCertificatePending)
	if diff := cmp.Diff([]string{"JTI=token"}, i.Status.BootstrapCredentials); diff != "" {
		t.Errorf("the token of the join is recorded as: %s", diff)
	}
	if n := w.getNode(t); !n.Spec.Unschedulable || n.Annotations[contract.PublicKeyHashAnnotation] != "hash" ||
		n.Annotations[contract.DesiredRevisionAnnotation] != version {
		t.Errorf("the node was not cordoned or marked: %v", n.Annotations)
	}
	w.sign(t, false)
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonRevisionPending)
	if w.machine.Open() != 0 || w.Slots.Held() != 0 {
		t.Errorf("after the handover, %d connections and %d slots are held", w.machine.Open(),
			w.Slots.Held())
	}
	w.setNode(t, func(n *corev1.Node) { n.Annotations[contract.RevisionAnnotation] = version })
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonNodeNotReady)
	w.setNode(t, func(n *corev1.Node) { n.Status.Conditions = joinedNode(version).Status.Conditions })
	want(t, w.join(t, i, session, ""), "done", "")

	if n := w.getNode(t); n.Spec.Unschedulable {
		t.Error("the operator's cordon was not lifted")
	}
	if w.machine.Dials() != 1 || w.machine.Sent() == 0 {
		t.Errorf("%d connections, %d bytes", w.machine.Dials(), w.machine.Sent())
	}
	verbs := []contract.Verb{contract.VerbPreflight, contract.VerbReceive, contract.VerbBootstrap,
		contract.VerbHandover}
	if diff := cmp.Diff(verbs, w.machine.Calls()); diff != "" {
		t.Error(diff)
	}
	if w.revoked != 1 || len(i.Status.BootstrapCredentials) != 0 {
		t.Errorf("after the handover, kubelet's first credential was revoked %d times and is recorded as: %v",
			w.revoked, i.Status.BootstrapCredentials)
	}
	handed := contract.HandoverRequest{}
	if ok, err := w.machine.Request(contract.VerbHandover, &handed); !ok || err != nil ||
		string(handed.Certificate) != "certificate" {
		t.Errorf("the handover request is %+v %v", handed, err)
	}
	if s := i.Status; s.HostKey == "" || s.NodeName != "win-a" || s.Revision != version ||
		s.DesiredRevision != version ||
		s.Host.Windows != "Windows Server 2022 Datacenter 10.0.20348.2340" {
		t.Errorf("status %+v", s)
	}
}

func TestEachPhaseThatCanNotPassSaysWhy(t *testing.T) {
	t.Parallel()
	problem := func(reason contract.Reason) *contract.Problem { return contract.NewProblem(reason, "so it is") }
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "win-a", errors.New("newer"))
	down := apierrors.NewServiceUnavailable("the API server is away")
	for name, test := range map[string]struct {
		nodes   []client.Object
		arrange func(w *world)
		verdict string
		reason  contract.Reason
		in      v1alpha1.Phase
	}{
		"there is no private key": {nil, func(w *world) { w.noKey = problem(contract.ReasonPrivateKeyMissing) },
			"waits", contract.ReasonPrivateKeyMissing, v1alpha1.PhaseConnecting},
		"the key can't be read": {nil, func(w *world) { w.noKey = down }, "waits", contract.ReasonAPICallFailed,
			v1alpha1.PhaseConnecting},
		"nothing answers": {nil,
			func(w *world) { w.machine.Fail(hosttest.Dialling, problem(contract.ReasonUnreachable)) }, "fails",
			contract.ReasonUnreachable, v1alpha1.PhaseConnecting},
		"all slots are taken": {nil, func(w *world) { w.Slots.Acquire(types.NamespacedName{Name: "other"}) }, "waits",
			contract.ReasonWaitingForSlot, v1alpha1.PhaseConnecting},
		"nothing is published yet": {nil, func(w *world) { w.lacks = problem(contract.ReasonManifestMissing) }, "waits",
			contract.ReasonManifestMissing, v1alpha1.PhasePreflight},
		"a fact is lacking that only hosts need": {nil, func(w *world) { w.Desired = lacking{w} }, "waits",
			contract.ReasonClusterFactsIncomplete, v1alpha1.PhasePreflight},
		"uploading fails": {nil, func(w *world) {
			w.machine.Fail(hosttest.Uploading, fmt.Errorf("writing: %w", problem(contract.ReasonNoSFTP)))
		},
			"fails", contract.ReasonNoSFTP, v1alpha1.PhasePreflight},
		"the daemon gives no answer": {nil, func(w *world) {
			w.machine.Fail(string(contract.VerbPreflight), problem(contract.ReasonDaemonCallFailed))
		},
			"fails", contract.ReasonDaemonCallFailed, v1alpha1.PhasePreflight},
		"an error that nobody classified": {nil,
			func(w *world) { w.machine.Fail(string(contract.VerbPreflight), errors.New("oops")) },
			"fails", contract.ReasonInternal, v1alpha1.PhasePreflight},
		"the host is not fit": {nil, func(w *world) {
			w.machine.Answer(contract.VerbPreflight,
				contract.PreflightAnswer{Facts: w.machine.Facts(),
					Problems: []contract.Problem{*problem(contract.ReasonDiskFull),
						*problem(contract.ReasonPortInUse)}})
		}, "fails", contract.ReasonDiskFull, v1alpha1.PhasePreflight},
		"the host has no name": {
			nil, func(w *world) { w.machine.Change(func(f *contract.HostFacts) { f.Hostname = "" }) },
			"fails", contract.ReasonHostnameInvalid, v1alpha1.PhasePreflight},
		"the host calls itself what the API server is called": {
			nil, func(w *world) { w.machine.Change(func(f *contract.HostFacts) { f.Hostname = "API" }) },
			"fails", contract.ReasonHostnameInvalid, v1alpha1.PhasePreflight},
		"the cloud calls the host what clients call the API server": {nil, func(w *world) {
			w.server, w.platform = "https://api-int.lab.example.com:6443", contract.PlatformAWS
			w.machine.Change(func(f *contract.HostFacts) { f.NodeName = "api.lab.example.com" })
		}, "fails", contract.ReasonHostnameInvalid, v1alpha1.PhasePreflight},
		"the cloud calls the host by a number": {nil, func(w *world) {
			w.platform = contract.PlatformAWS
			w.machine.Change(func(f *contract.HostFacts) { f.NodeName = "10.0.0.9" })
		}, "fails", contract.ReasonHostnameInvalid, v1alpha1.PhasePreflight},
		"the host has the API server's address": {nil, func(w *world) {
			w.server = "https://10.0.0.5:6443"
			w.machine.Change(func(f *contract.HostFacts) { f.NodeIP = "10.0.0.5" })
		}, "fails", contract.ReasonHostInClusterNetwork, v1alpha1.PhasePreflight},
		"the host calls itself by a name in a domain": {
			nil, func(w *world) { w.machine.Change(func(f *contract.HostFacts) { f.Hostname = "vault.corp.example" }) },
			"fails", contract.ReasonHostnameInvalid, v1alpha1.PhasePreflight},
		"the host has an address of pods": {
			nil, func(w *world) { w.machine.Change(func(f *contract.HostFacts) { f.NodeIP = "10.244.7.9" }) },
			"fails", contract.ReasonHostInClusterNetwork, v1alpha1.PhasePreflight},
		"the host has an address of Services": {
			nil, func(w *world) { w.machine.Change(func(f *contract.HostFacts) { f.NodeIP = "10.96.0.20" }) },
			"fails", contract.ReasonHostInClusterNetwork, v1alpha1.PhasePreflight},
		"another instance has the host": {nil,
			func(w *world) { w.Claims.Claim("win-a", journey.Claimant{UID: "b", MachineID: "machine-win-a"}) },
			"fails", contract.ReasonHostDuplicate, v1alpha1.PhasePreflight},
		"another host has the name": {nil,
			func(w *world) { w.Claims.Claim("win-a", journey.Claimant{UID: "b", MachineID: "another"}) },
			"fails", contract.ReasonHostDuplicate, v1alpha1.PhasePreflight},
		"preparing fails": {nil, func(w *world) {
			w.machine.Answer(contract.VerbPreflight,
				contract.PreflightAnswer{Facts: w.machine.Facts(), NeedsPrepare: []string{"Containers"}})
			w.machine.Answer(contract.VerbPrepare, problem(contract.ReasonFeatureMissing))
		}, "fails", contract.ReasonFeatureMissing, v1alpha1.PhasePreparing},
		"the payload lacks what the host lacks": {nil, func(w *world) {
			w.machine.Answer(contract.VerbPreflight,
				contract.PreflightAnswer{Facts: w.machine.Facts(), Missing: []contract.Blob{{Digest: digest("unknown"), Size: 1}}})
		}, "fails", contract.ReasonPayloadMissing, v1alpha1.PhaseDelivering},
		"the transfer breaks": {nil, func(w *world) {
			w.machine.Answer(contract.VerbPreflight,
				contract.PreflightAnswer{Facts: w.machine.Facts(),
					Missing: []contract.Blob{{Digest: digest("kubelet")}}})
			w.machine.Fail(hosttest.Sending, problem(contract.ReasonConnectionLost))
		}, "fails", contract.ReasonConnectionLost, v1alpha1.PhaseDelivering},
		"not everything arrived": {nil, func(w *world) {
			w.machine.Answer(contract.VerbPreflight,
				contract.PreflightAnswer{Facts: w.machine.Facts(),
					Missing: []contract.Blob{{Digest: digest("kubelet")}}})
			w.machine.Answer(contract.VerbReceive,
				contract.ReceiveAnswer{Missing: []contract.Blob{{Digest: digest("kubelet")}}})
		}, "fails", contract.ReasonPayloadIncomplete, v1alpha1.PhaseDelivering},
		"what arrived is damaged": {nil, func(w *world) {
			w.machine.Answer(contract.VerbPreflight,
				contract.PreflightAnswer{Facts: w.machine.Facts(),
					Missing: []contract.Blob{{Digest: digest("kubelet")}}})
			w.machine.Answer(contract.VerbReceive, problem(contract.ReasonPayloadCorrupt))
		}, "fails", contract.ReasonPayloadCorrupt, v1alpha1.PhaseDelivering},
		"there is no token": {nil, func(w *world) { w.noToken = down }, "waits", contract.ReasonAPICallFailed,
			v1alpha1.PhaseBootstrapping},
		"the Node can't be read": {nil, func(w *world) { w.broken["get"] = down },
			"waits", contract.ReasonAPICallFailed, v1alpha1.PhaseBootstrapping},
		"a Linux node has the name": {[]client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-a"}}},
			func(*world) {},
			"fails", contract.ReasonNodeForeign, v1alpha1.PhaseBootstrapping},
		"kubelet does not start": {nil, func(w *world) {
			w.machine.Answer(contract.VerbBootstrap,
				problem(contract.ReasonServiceFailed))
		},
			"fails", contract.ReasonServiceFailed, v1alpha1.PhaseBootstrapping},
		"the host changes its name meanwhile": {nil,
			func(w *world) { w.machine.Answer(contract.VerbBootstrap, contract.BootstrapAnswer{NodeName: "win-b"}) },
			"fails", contract.ReasonHostnameInvalid, v1alpha1.PhaseBootstrapping},
		"the request can't be submitted": {nil, func(w *world) { w.broken["create"] = down }, "waits",
			contract.ReasonAPICallFailed, v1alpha1.PhaseBootstrapping},
		"the Node was changed by another": {[]client.Object{node()}, func(w *world) { w.broken["patch"] = conflict },
			"waits", contract.ReasonInProgress, v1alpha1.PhaseAdopting},
		"the API server goes away while the Node is marked": {[]client.Object{node()},
			func(w *world) { w.broken["patch"] = down },
			"waits", contract.ReasonAPICallFailed, v1alpha1.PhaseAdopting},
		"a policy denies what the Node is to have": {[]client.Object{node()}, func(w *world) {
			w.broken["patch"] = apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("only Windows"))
		}, "fails", contract.ReasonLabelsRefused, v1alpha1.PhaseAdopting},
		"a webhook denies what the Node is to have": {[]client.Object{node()},
			func(w *world) { w.broken["patch"] = apierrors.NewBadRequest("admission webhook: no") },
			"fails", contract.ReasonLabelsRefused, v1alpha1.PhaseAdopting},
		"an invalid label": {[]client.Object{node()}, func(w *world) {
			w.broken["patch"] = apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "win-a", nil)
		}, "fails", contract.ReasonLabelsRefused, v1alpha1.PhaseAdopting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.nodes...)
			test.arrange(w)
			i, session := newInstance(), &journey.Session{}
			outcome := w.join(t, i, session, "")
			want(t, outcome, test.verdict, test.reason)
			if i.Status.Phase != test.in {
				t.Errorf("the phase is %s, want %s", i.Status.Phase, test.in)
			}
			if outcome.IsWaiting() && outcome.After <= 0 {
				t.Error("the operator waits for ever")
			}
			if keeps := test.in != v1alpha1.PhaseConnecting ||
				test.reason == contract.ReasonWaitingForSlot; outcome.IsWaiting() && keeps && !session.Connected() {
				t.Error("the connection was closed during a wait")
			}
		})
	}
}

// If a host reaches the API server through the cluster's proxy, preflight must not test a direct connection, because
// none is needed.
func TestA08_PreflightTriesTheAPIServerWhereNoProxyIsInBetween(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		proxy blueprint.Proxy
		tried bool
	}{
		"no proxy":                        {blueprint.Proxy{}, true},
		"a proxy that is not for the API": {blueprint.Proxy{HTTPS: "http://proxy:3128", None: "api,.svc"}, true},
		"a proxy for everything":          {blueprint.Proxy{HTTPS: "http://proxy:3128"}, false},
		"a proxy for what is not TLS":     {blueprint.Proxy{HTTP: "http://proxy:3128"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.proxy = test.proxy
			want(t, w.join(t, newInstance(), &journey.Session{}, v1alpha1.PhasePreparing), "done", "")
			request := contract.PreflightRequest{}
			if _, err := w.machine.Request(contract.VerbPreflight, &request); err != nil {
				t.Fatal(err)
			}
			if (request.APIServer == "https://api:6443" && string(request.CA) == "ca") != test.tried {
				t.Errorf("preflight is told to try %q with %q", request.APIServer, request.CA)
			}
		})
	}
}

// Preflight checks the directories of an external network plugin only if the cluster has an external network.
func TestA50_AHostIsToldWhetherItsNetworkIsExternal(t *testing.T) {
	t.Parallel()
	for _, network := range []string{blueprint.NetworkExternal, blueprint.NetworkFlannel,
		blueprint.NetworkOVNKubernetes} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.network = network
			want(t, w.join(t, newInstance(), &journey.Session{}, v1alpha1.PhaseBootstrapping), "done", "")
			first, second := contract.PreflightRequest{}, contract.BootstrapRequest{}
			_, err := w.machine.Request(contract.VerbPreflight, &first)
			if _, err2 := w.machine.Request(contract.VerbBootstrap, &second); err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			if is := network == blueprint.NetworkExternal; first.ExternalNetwork != is || second.ExternalNetwork != is {
				t.Errorf("preflight is told %v, bootstrap is told %v", first.ExternalNetwork, second.ExternalNetwork)
			}
		})
	}
}

func TestAWaitForTheAPIServerGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, node())
	w.broken["patch"] = apierrors.NewServiceUnavailable("away")
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonAPICallFailed)
	delete(w.broken, "patch")
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonCertificatePending)
	if calls := w.machine.Calls(); w.machine.Dials() != 1 || len(calls) != 2 {
		t.Errorf("%d connections and calls %v: a step was done twice", w.machine.Dials(), calls)
	}
}

func TestTheHostKeyIsPinnedEvenIfItCouldNotBeSavedAtFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, v1alpha1.PhaseConnecting), "done", "")
	i.Status.HostKey = "" // the status was lost, but not the connection
	i.Status.Phase = v1alpha1.PhaseConnecting
	want(t, w.join(t, i, session, v1alpha1.PhaseConnecting), "done", "")
	if i.Status.HostKey == "" || w.machine.Dials() != 1 {
		t.Errorf("pin %q after %d connections", i.Status.HostKey, w.machine.Dials())
	}
	if i.Spec.HostKey = "ssh-rsa BBBB"; journey.ExpectedHostKey(i) != "ssh-rsa BBBB" {
		t.Error("a key that the user sets must replace the pinned key")
	}
}

func TestTheAddressIsNotedAtWhichTheHostWithThePinnedKeyWasReached(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i, session := newInstance(), &journey.Session{}
	i.Spec.Address = "win-a.example.com"
	reach := func(at string) journey.Outcome {
		t.Helper()
		w.machine.Change(func(f *contract.HostFacts) { f.NodeIP = at })
		session.End()
		i.Status.Phase = v1alpha1.PhaseConnecting
		return w.join(t, i, session, v1alpha1.PhasePreflight)
	}
	for _, at := range []string{"10.0.0.7", "10.0.0.8"} {
		w.clock = w.clock.Add(time.Hour)
		want(t, reach(at), "done", "")
		if i.Status.Host.Address != at || !i.Status.Host.Time.Equal(new(metav1.NewTime(w.clock))) {
			t.Errorf("the status has %+v, the host was reached at %s", i.Status.Host, at)
		}
	}
	pinned := i.Status.HostKey
	w.machine.Prove("ssh-ed25519 AAAAanother")
	want(t, reach("10.0.0.9"), "fails", contract.ReasonHostKeyMismatch)
	if i.Status.Host.Address != "10.0.0.8" || i.Status.HostKey != pinned {
		t.Errorf("the status has %q for another host", i.Status.Host.Address)
	}
	w.machine.Prove(pinned)
	want(t, reach(""), "done", "")
	if i.Status.Host.Address != "" {
		t.Errorf("the status has the previous address %q", i.Status.Host.Address)
	}
}

func TestAJoinGoesOnWhereItCan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	connected := &journey.Session{}
	want(t, w.join(t, newInstance(), connected, v1alpha1.PhaseConnecting), "done", "")
	broken := &journey.Session{}
	for name, test := range map[string]struct {
		phase   v1alpha1.Phase
		session *journey.Session
		desired string
		want    v1alpha1.Phase
	}{
		"nothing was done":  {v1alpha1.PhasePending, broken, "", v1alpha1.PhaseConnecting},
		"no phase is known": {"", broken, "", v1alpha1.PhaseConnecting},
		"in a remote phase with its connection": {v1alpha1.PhaseDelivering, connected, "",
			v1alpha1.PhaseDelivering},
		"in a remote phase whose connection is gone": {v1alpha1.PhaseDelivering, broken, "",
			v1alpha1.PhaseConnecting},
		"waiting for the daemon": {v1alpha1.PhaseConfirming, broken, version,
			v1alpha1.PhaseConfirming},
		"waiting for a version that is not wanted now": {v1alpha1.PhaseConfirming, broken, "1.0.0-bbbbbbbbbb",
			v1alpha1.PhaseConnecting},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstance()
			i.Status.Phase, i.Status.DesiredRevision = test.phase, test.desired
			if got := w.Phases()[w.Resume(t.Context(), i, test.session)].Name; got != test.want {
				t.Errorf("the join continues in %s, want %s", got, test.want)
			}
		})
	}
}

func TestARebootIsProvenByTheBootID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	needs := contract.PreflightAnswer{Facts: w.machine.Facts(), NeedsPrepare: []string{"Containers"}}
	w.machine.Answer(contract.VerbPreflight, needs)
	w.machine.Answer(contract.VerbPrepare, contract.PrepareAnswer{Rebooting: true, BootID: "boot-1"})
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonRebooting)
	if w.Slots.Held() != 0 || session.Connected() {
		t.Error("a rebooting host holds its join slot or its connection")
	}
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonRebooting) // the host has not rebooted yet
	if calls := w.machine.Calls(); slices.Contains(calls[2:], contract.VerbPrepare) {
		t.Errorf("the host was requested to reboot twice: %v", calls)
	}
	w.machine.Break()
	w.machine.Fail(hosttest.Dialling, contract.NewProblem(contract.ReasonUnreachable, "down"))
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonRebooting)
	if w.Slots.Held() != 0 {
		t.Error("a host that is down holds a join slot")
	}
	w.machine.Fail(hosttest.Dialling, nil)
	w.machine.Answer(contract.VerbPreflight, nil)
	w.machine.Change(func(f *contract.HostFacts) { f.BootID = "boot-2" })
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonNodePending)
	if !session.RebootTime.IsZero() {
		t.Error("the reboot is not recorded as done")
	}
}

func TestARebootThatNeverHappensIsAskedForAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.machine.Answer(contract.VerbPreflight,
		contract.PreflightAnswer{Facts: w.machine.Facts(), NeedsPrepare: []string{"Containers"}})
	w.machine.Answer(contract.VerbPrepare, contract.PrepareAnswer{Rebooting: true, BootID: "boot-1"})
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonRebooting)
	w.clock = w.clock.Add(time.Hour)
	want(t, w.join(t, i, session, ""), "fails", contract.ReasonRebootTimedOut)
	session.End()
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonRebooting)
	if asked := len(slices.DeleteFunc(w.machine.Calls(),
		func(v contract.Verb) bool { return v != contract.VerbPrepare })); asked != 2 {
		t.Errorf("the host was requested to reboot %d times", asked)
	}
}

func TestAHostThatDoesNotComeBackFromARebootFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i, session := newInstance(), &journey.Session{RebootTime: w.clock}
	w.machine.Fail(hosttest.Dialling, contract.NewProblem(contract.ReasonKeyRefused, "no"))
	want(t, w.join(t, i, session, ""), "fails", contract.ReasonKeyRefused) // this error is not caused by the reboot
	w.machine.Fail(hosttest.Dialling, contract.NewProblem(contract.ReasonUnreachable, "down"))
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonRebooting)
	w.clock = w.clock.Add(time.Hour)
	want(t, w.join(t, i, session, ""), "fails", contract.ReasonRebootTimedOut)
}

func TestAHostMayBeRenamedBeforeItIsANodeOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, v1alpha1.PhasePreflight), "done", "")
	w.machine.Change(func(f *contract.HostFacts) { f.Hostname = "WIN-B" })
	i.Status.Phase = v1alpha1.PhasePreflight
	want(t, w.join(t, i, session, v1alpha1.PhasePreflight), "done", "")
	if _, taken := w.Claims.Owner("win-a"); taken || i.Status.NodeName != "win-b" {
		t.Errorf("the old name is still claimed (%v), or the node name is %q", taken, i.Status.NodeName)
	}
	i.Status.NodeUID, i.Status.Phase = "joined", v1alpha1.PhasePreflight
	w.machine.Change(func(f *contract.HostFacts) { f.Hostname = "win-c" })
	want(t, w.join(t, i, session, v1alpha1.PhasePreflight), "fails", contract.ReasonHostnameInvalid)
	if i.Status.NodeName != "win-b" {
		t.Errorf("the node name changed to %q", i.Status.NodeName)
	}
}

// A refused host reported another host's identity. This must not count as a claim, not even after a restart, when the
// operator knows only the status.
func TestA10_WhatARefusedHostSaysOfItselfClaimsNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		says   func(f *contract.HostFacts)
		reason contract.Reason
	}{
		"it is another's installation of Windows": {func(f *contract.HostFacts) { f.MachineID = "machine-win-b" },
			contract.ReasonHostDuplicate},
		"so it is, under a name that no node has": {
			func(f *contract.HostFacts) { f.MachineID, f.Hostname = "machine-win-b", "a_b" },
			contract.ReasonHostnameInvalid},
		"so it is, under another name": {
			func(f *contract.HostFacts) { f.MachineID, f.Hostname = "machine-win-b", "win-c" },
			contract.ReasonHostnameInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			b := newInstance()
			b.Name, b.UID = "10.0.0.2", "uid-b"
			b.Status.NodeName, b.Status.Host = "win-b", &v1alpha1.HostInfo{MachineID: "machine-win-b"}
			w.Claims.Remember(b)
			i, session := newInstance(), &journey.Session{}
			want(t, w.join(t, i, session, v1alpha1.PhasePreflight), "done", "")
			i.Status.NodeUID, i.Status.Phase = "joined", v1alpha1.PhasePreflight
			w.machine.Change(func(f *contract.HostFacts) { f.ProductName = "Windows of another" })
			w.machine.Change(test.says)
			want(t, w.join(t, i, session, v1alpha1.PhasePreflight), "fails", test.reason)
			if i.Status.Host.Windows != "Windows of another 10.0.20348.2340" || i.Status.Host.MachineID != "machine-win-a" {
				t.Errorf("the status has %+v", i.Status.Host)
			}
			again := journey.NewClaims()
			again.Remember(i)
			again.Remember(b)
			if owner, ok := again.Claim("win-b", journey.Claimant{UID: b.UID, MachineID: "machine-win-b"}); !ok {
				t.Errorf("after a restart, %s claims the host", owner.Key.Name)
			}
		})
	}
}

// The node name becomes part of names of objects and of paths.
func TestA51_AHostThatCallsItselfWhatNoNodeIsCalledIsRefused(t *testing.T) {
	t.Parallel()
	for what, name := range map[string]string{
		"a path": "../../etc", "two lines": "win-a\nwin-b", "a control character": "win-a\x1b[2J", "no ASCII": "wín-a",
		"without end": strings.Repeat("a", 500_000), "longer than a request's name": strings.Repeat("a.", 110) + "a",
		"a label's part": "win_a", "a dot": ".", "a blank": "win a",
	} {
		for from, change := range map[string]func(f *contract.HostFacts){
			"hostname": func(f *contract.HostFacts) { f.Hostname = name },
			"nodeName": func(f *contract.HostFacts) { f.NodeName = name },
		} {
			w := newWorld(t)
			w.machine.Change(change)
			i := newInstance()
			outcome := w.join(t, i, &journey.Session{}, v1alpha1.PhasePreflight)
			reason := contract.ReasonHostnameInvalid
			if answer := (contract.PreflightAnswer{Facts: w.machine.Facts()}); answer.Check() != nil {
				reason = contract.ReasonDaemonCallFailed // the whole answer is refused
			}
			want(t, outcome, "fails", reason)
			if _, taken := w.Claims.Owner(name); taken || i.Status.NodeName != "" {
				t.Errorf("%s as %s: taken %v, node %.63q", what, from, taken, i.Status.NodeName)
			}
			if text := outcome.Problem.Detail; len(text) > 500 || strings.ContainsAny(text, "\n\x1b") {
				t.Errorf("%s as %s: the message has %d bytes: %.100q", what, from, len(text), text)
			}
		}
	}
}

func TestAHostThatGetsNowhereMakesRoomForOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonNodePending)
	w.clock = w.clock.Add(10 * time.Minute)
	want(t, w.join(t, i, session, ""), "fails", contract.ReasonNodePending)

	other := newWorld(t, node())
	want(t, other.join(t, i, session, ""), "waits", contract.ReasonCertificatePending)
	other.clock = w.clock.Add(20 * time.Minute)
	want(t, other.join(t, i, session, ""), "fails", contract.ReasonCertificatePending)
}

// A kubelet may write its Node all the time, so that each write of another client conflicts.
func TestA55_AHostWhoseNodeCanNotBeWrittenMakesRoomForOthers(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]error{
		"it is newer each time": apierrors.NewConflict(corev1.Resource("nodes"), "win-a", errors.New("newer")),
		"nothing answers":       apierrors.NewServiceUnavailable("away"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, node())
			w.broken["patch"] = broken
			i, session := newInstance(), &journey.Session{}
			if outcome := w.join(t, i, session, ""); !outcome.IsWaiting() {
				t.Fatalf("the first outcome is %+v", outcome)
			}
			w.clock = w.clock.Add(6 * time.Minute)
			if outcome := w.join(t, i, session, ""); !outcome.IsWaiting() {
				t.Fatalf("the first conflict with a late Node fails the join: %+v", outcome)
			}
			w.clock = w.clock.Add(5 * time.Minute)
			want(t, w.join(t, i, session, ""), "fails", contract.ReasonAPICallFailed)
		})
	}
}

// A right may be missing, or a webhook may refuse a call, until a person repairs it. In the meantime, the host must
// not block others.
func TestA55_AHostForWhichACallIsRefusedMakesRoomForOthers(t *testing.T) {
	t.Parallel()
	no := apierrors.NewForbidden(corev1.Resource("anything"), "win-a", errors.New("no"))
	for name, test := range map[string]struct {
		refuse func(w *world)
		in     v1alpha1.Phase
		calls  []contract.Verb
	}{
		"kubelet's token": {func(w *world) { w.noToken = no }, v1alpha1.PhaseBootstrapping,
			[]contract.Verb{contract.VerbPreflight}},
		"its Node": {func(w *world) { w.broken["get"] = no }, v1alpha1.PhaseBootstrapping,
			[]contract.Verb{contract.VerbPreflight}},
		"the daemon's certificate": {func(w *world) { w.broken["create"] = no }, v1alpha1.PhaseBootstrapping,
			[]contract.Verb{contract.VerbPreflight, contract.VerbBootstrap}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			test.refuse(w)
			i, session := newInstance(), &journey.Session{}
			for range 2 {
				want(t, w.join(t, i, session, ""), "waits", contract.ReasonAPICallFailed)
				w.clock = w.clock.Add(5 * time.Minute)
			}
			w.clock = w.clock.Add(time.Minute)
			want(t, w.join(t, i, session, ""), "fails", contract.ReasonAPICallFailed)
			if i.Status.Phase != test.in {
				t.Errorf("the phase is %s, want %s", i.Status.Phase, test.in)
			}
			if diff := cmp.Diff(test.calls, w.machine.Calls()); diff != "" {
				t.Errorf("calls to the host were repeated: %s", diff)
			}
		})
	}
}

// A transfer or a drain may take longer than the time limit for retries of a failing call. A first failure late in
// the phase must still be retried.
func TestACallThatFailsOnceLateInItsPhaseIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i, session := newInstance(), &journey.Session{}
	w.noToken = apierrors.NewServiceUnavailable("away")
	want(t, w.join(t, i, session, v1alpha1.PhasePreparing), "done", "")
	i.Status.Phase = v1alpha1.PhaseDelivering
	i.Status.Phases = append(i.Status.Phases, v1alpha1.PhaseTime{Phase: v1alpha1.PhaseDelivering,
		StartTime: metav1.NewMicroTime(w.clock)})
	w.clock = w.clock.Add(20 * time.Minute)
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonAPICallFailed)
	w.noToken = nil
	w.broken["create"] = apierrors.NewServiceUnavailable("away")
	w.clock = w.clock.Add(9 * time.Minute)
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonAPICallFailed)
	w.clock = w.clock.Add(9 * time.Minute)
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonAPICallFailed)
	delete(w.broken, "create")
	want(t, w.join(t, i, session, v1alpha1.PhaseBootstrapping), "done", "")
}

func TestLabelsAndTaintsThatAreRefusedAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, node())
	w.broken["patch"] = apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("only Windows"))
	i := newInstance()
	i.Spec.Labels = map[string]string{"team": "blue", corev1.LabelOSStable: "linux"}
	i.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}
	outcome := w.join(t, i, &journey.Session{}, "")
	want(t, outcome, "fails", contract.ReasonLabelsRefused)
	for _, part := range []string{"win-a", "kubernetes.io/os=linux,team=blue", "gpu=yes:NoSchedule", "only Windows"} {
		if !strings.Contains(outcome.Problem.Detail, part) {
			t.Errorf("the detail lacks %s: %s", part, outcome.Problem.Detail)
		}
	}
	if len(i.Status.NodeMarks) > 0 {
		t.Errorf("the marks of the Node are recorded as %v", i.Status.NodeMarks)
	}
}

func TestAHostWhoseLabelsAreRefusedAtTheEndFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1.0.0-old"))
	w.broken["patch"] = apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("only Windows"))
	i := newInstance()
	i.Status.Phase, i.Status.NodeName, i.Status.DesiredRevision = v1alpha1.PhaseConfirming, "win-a", version
	want(t, w.join(t, i, &journey.Session{}, ""), "fails", contract.ReasonLabelsRefused)
}

func TestACertificateThatIsDeniedFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, node())
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonCertificatePending)
	w.broken["get"] = apierrors.NewServiceUnavailable("away")
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonAPICallFailed)
	delete(w.broken, "get")
	w.sign(t, true)
	want(t, w.join(t, i, session, ""), "fails", contract.ReasonCertificateDenied)
}

func TestADaemonThatDoesNotRunIsNotHandedOverTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, node())
	w.machine.Fail(string(contract.VerbHandover), contract.NewProblem(contract.ReasonServiceFailed, "it does not run"))
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, ""), "waits", contract.ReasonCertificatePending)
	w.sign(t, false)
	want(t, w.join(t, i, session, ""), "fails", contract.ReasonServiceFailed)
	if w.Slots.Held() != 1 {
		t.Error("the phase released the join slot, but only the end of the attempt may do that")
	}
}

func TestOnlyAMissingNodeIsRegisteredAnew(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		objects  []client.Object
		register bool
	}{"no Node": {nil, true}, "a Node": {[]client.Object{joinedNode("old")}, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.objects...)
			i := newInstance()
			i.Status.Slot = &v1alpha1.Slot{Since: new(metav1.Now())} // without a slot, the node must not be disrupted
			want(t, w.join(t, i, &journey.Session{}, v1alpha1.PhaseBootstrapping), "done", "")
			asked := contract.BootstrapRequest{}
			if ok, err := w.machine.Request(contract.VerbBootstrap, &asked); !ok || err != nil ||
				asked.Register != test.register {
				t.Errorf("register = %v, %v", asked.Register, err)
			}
			if asked.NodeName != "win-a" || asked.Revision != version || len(asked.BootstrapKubeconfig) == 0 {
				t.Errorf("the bootstrap request is %+v", asked)
			}
		})
	}
}

func TestAStaleNodeIsNotTakenForOneThatArrived(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1.0.0-old")) // a stale cache shows the Node without the operator's mark
	i := newInstance()
	i.Status.Phase, i.Status.NodeName, i.Status.DesiredRevision = v1alpha1.PhaseConfirming, "win-a", version
	want(t, w.join(t, i, &journey.Session{}, ""), "waits", contract.ReasonRevisionPending)
	if got := w.getNode(t).Annotations[contract.DesiredRevisionAnnotation]; got != version {
		t.Errorf("the daemon was told revision %q", got)
	}
}

func TestConfirmingDoesNotTakeAnothersNode(t *testing.T) {
	t.Parallel()
	foreign := joinedNode(version)
	foreign.Annotations[contract.InstanceAnnotation] = "ns/another"
	for name, test := range map[string]struct {
		objects []client.Object
		reason  contract.Reason
	}{"the Node vanished": {nil, contract.ReasonNodePending},
		"the Node is another's": {[]client.Object{foreign}, contract.ReasonNodeForeign}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.objects...)
			i := newInstance()
			i.Status.Phase, i.Status.NodeName, i.Status.DesiredRevision = v1alpha1.PhaseConfirming, "win-a", version
			want(t, w.join(t, i, &journey.Session{}, ""), "fails", test.reason)
		})
	}
}

func TestANodeThatServesIsNotCordonedByJoiningAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode(version))
	i := newInstance()
	// An earlier join created this Node; otherwise the node would be drained first.
	i.Status.NodeName, i.Status.NodeUID = "win-a", "node-uid"
	want(t, w.join(t, i, &journey.Session{}, v1alpha1.PhaseAdopting), "done", "")
	if w.getNode(t).Spec.Unschedulable {
		t.Error("the node was cordoned")
	}
}

func TestJourneysNeedAllTheirParts(t *testing.T) {
	t.Parallel()
	if _, err := journey.New(journey.Options{}); err == nil {
		t.Error("New accepted missing parts")
	}
}

func TestAHostThatIsNotConfirmedInTimeKeepsNoPlaceFromOthers(t *testing.T) {
	t.Parallel()
	n := joinedNode("1.0.0-old")
	n.Annotations[contract.ApplyStatusAnnotation] = "ServiceFailed: kubelet does not stay up"
	w := newWorld(t, n)
	i := newInstance()
	i.Status.Phase, i.Status.NodeName, i.Status.DesiredRevision = v1alpha1.PhaseConfirming, "win-a", version
	i.Status.Phases = []v1alpha1.PhaseTime{{Phase: v1alpha1.PhaseConfirming, StartTime: metav1.NewMicroTime(w.clock)}}
	if outcome := w.join(t, i, &journey.Session{}, ""); !outcome.IsWaiting() || outcome.Endless {
		t.Errorf("the first outcome is %+v", outcome)
	}
	w.clock = w.clock.Add(v1alpha1.DefaultVerifyTimeout + time.Minute)
	if outcome := w.join(t, i, &journey.Session{}, ""); !outcome.IsWaiting() || !outcome.Endless {
		t.Errorf("after verifyTimeout the outcome is %+v", outcome)
	}
}

// lacking returns a desired state that nodes may follow, but facts that are not sufficient for new hosts.
type lacking struct{ *world }

func (l lacking) Current(ctx context.Context) (blueprint.Desired, blueprint.Facts, error) {
	desired, facts, err := l.world.Current(ctx)
	facts.Lacks = []*contract.Problem{contract.NewProblem(contract.ReasonClusterFactsIncomplete, "x")}
	return desired, facts, err
}

// kubelet writes the status of its new Node all the time. Only if another client has set a mark or changed the
// taints, the operator's write must fail.
func TestANewNodeIsMarkedWhateverKubeletWroteSince(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arrange func(n *corev1.Node)
		refused bool
	}{
		"new": {func(*corev1.Node) {}, false},
		"marked": {func(n *corev1.Node) {
			n.Annotations = map[string]string{contract.InstanceAnnotation: "ns/win-a"}
		}, true},
		"its taints change": {func(n *corev1.Node) { n.Spec.Taints = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, i := node(), newInstance()
			n.Spec.Taints = []corev1.Taint{{Key: "os", Value: "Windows", Effect: corev1.TaintEffectNoSchedule}}
			test.arrange(n)
			w := newWorld(t, n)
			old, err := w.Nodes.Get(t.Context(), n.Name)
			if err != nil {
				t.Fatal(err)
			}
			since := old.DeepCopy()
			since.Status.Phase = corev1.NodeRunning
			if err = w.client.Update(t.Context(), since); err != nil {
				t.Fatal(err)
			}
			err = w.Nodes.Request(t.Context(), old, journey.NodeFields{Instance: i, Revision: version})
			if refused := apierrors.IsConflict(err); refused != test.refused || !refused && err != nil {
				t.Errorf("refused %v: %v", refused, err)
			}
		})
	}
}
