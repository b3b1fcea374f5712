package kubectlwindows

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/response"
)

const (
	// maxAnswer is the maximum size of a response of the API server in bytes. A list of five thousand Windows nodes
	// with many images needs half of this size.
	maxAnswer = 128 << 20
	// maxListed is the maximum number of objects in a list.
	maxListed = 5000
)

// reader reads objects for commands, with the caller's rights. It sends few requests, with limited time and size.
type reader struct {
	client.Client
	clients kubernetes.Interface
	web     *http.Client
	// operator is the operator's namespace. namespace is the namespace that the caller selected.
	operator, namespace string
	now                 func() time.Time
	// credentials are the caller's token and password. A bundle must not contain them.
	credentials []string
}

func (p *plugin) connect() (*reader, error) {
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1 // the API server's priority and fairness is enough for a few requests
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return response.Transport(next, maxAnswer) })
	namespace, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the namespace: %w", err)
	}
	scheme := runtime.NewScheme()
	if err = errors.Join(clientscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	web.CheckRedirect = refuseRedirect
	r := &reader{web: web, operator: p.operator, namespace: namespace, now: p.now,
		credentials: []string{config.BearerToken, config.Password}}
	if r.Client, err = client.New(config, client.Options{Scheme: scheme, HTTPClient: web}); err == nil {
		r.clients, err = kubernetes.NewForConfigAndClient(config, web)
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return r, nil
}

// refuseRedirect refuses every redirect except one that appends a slash to the path. The API server itself sends no
// redirects, but it passes on the responses of nodes. client-go would send the caller's credentials to the address in
// such a response.
func refuseRedirect(to *http.Request, via []*http.Request) error {
	directory := *via[0].URL
	directory.Path += "/"
	if len(via) == 1 && to.URL.String() == directory.String() {
		return nil
	}
	return fmt.Errorf("refused a redirect to %s", to.URL.Host)
}

// errNotInstalled means that the API server doesn't have the kind WindowsInstance.
var errNotInstalled = errors.New("the cluster does not have the kind WindowsInstance: the operator is not installed")

// snapshot reads the fleet. It records in the snapshot which objects couldn't be read. If the WindowsInstances can't be
// read, snapshot fails. Exception: if `partial` is true and the API server refused to list them, snapshot continues.
func (r *reader) snapshot(ctx context.Context, partial bool) (diagnosis.Snapshot, error) {
	s := diagnosis.Snapshot{Now: r.now()}
	instances, err := r.instances(ctx)
	refused := errors.Is(err, errNotInstalled) || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
	if err != nil && (!partial || !refused) {
		return s, err
	}
	s.Instances, s.InstancesUnread, s.Unread = instances, err != nil, unread(nil, "hosts", err)
	var nodes corev1.NodeList
	s.Unread = unread(s.Unread, "nodes", r.List(ctx, &nodes,
		client.MatchingLabels{corev1.LabelOSStable: string(corev1.Windows)}))
	s.Nodes = nodes.Items
	err = r.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, &s.Config)
	if !meta.IsNoMatchError(err) {
		s.Unread = unread(s.Unread, "the WindowsMachineConfig", client.IgnoreNotFound(err))
	}
	if runs := s.Config.Status.Operator.Namespace; runs != "" && runs != r.operator {
		s.Unread = append(s.Unread, fmt.Sprintf("hosts in namespace %s were read, and the operator runs in "+
			"namespace %s: "+
			"use --operator-namespace %[2]s", r.operator, runs))
	}
	lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.operator}}
	err = r.Get(ctx, client.ObjectKey{Namespace: r.operator, Name: contract.LeaderLease}, &lease)
	s.Unread = unread(s.Unread, "the operator's lease", client.IgnoreNotFound(err))
	if client.IgnoreNotFound(err) == nil {
		s.Lease = &lease
	}
	return s, nil
}

func (r *reader) instances(ctx context.Context) ([]v1alpha1.WindowsInstance, error) {
	var list v1alpha1.WindowsInstanceList
	err := r.List(ctx, &list, client.InNamespace(r.operator))
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return nil, errNotInstalled
	case err != nil:
		return nil, fmt.Errorf("listing WindowsInstances in namespace %s: %w", r.operator, err)
	}
	return list.Items, nil
}

// `unread` adds to a list that the object `what` could not be read, and why. If err is nil, it adds nothing.
func unread(all []string, what string, err error) []string {
	if err == nil {
		return all
	}
	return append(all, what+" could not be read: "+err.Error())
}

// events returns the events of an object. If not all events could be read, the snapshot says so.
func (r *reader) events(ctx context.Context, s *diagnosis.Snapshot, kind, namespace,
	name string) []diagnosis.Event {
	about := fields.Set{"involvedObject.kind": kind, "involvedObject.name": name}.AsSelector()
	var list corev1.EventList
	err := r.List(ctx, &list, client.InNamespace(namespace), client.Limit(maxListed),
		client.MatchingFieldsSelector{Selector: about})
	s.Unread = unread(s.Unread, "events of "+kind+" "+name, err)
	all := make([]diagnosis.Event, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, eventOf(&list.Items[i], kind+"/"+name))
	}
	if list.Continue != "" {
		s.Unread = append(s.Unread, fmt.Sprintf(
			"events of %s %s: only the first %d were read, in the order of their names", kind, name, len(all)))
	}
	return all
}

// eventOf converts an event. object is the object of the event, as kind/name.
func eventOf(e *corev1.Event, object string) diagnosis.Event {
	at := e.LastTimestamp
	switch {
	case e.Series != nil:
		at.Time = e.Series.LastObservedTime.Time
	case at.IsZero():
		at.Time = e.EventTime.Time
	}
	return diagnosis.Event{Time: at, Type: e.Type, Reason: e.Reason, Object: object, Message: e.Message, Count: e.Count}
}

// findInstance finds an instance by its name, its address or its node, or returns nil. If several instances match, it
// fails, because the caller may be about to remove a host. For example, two hosts may have the same address, or one
// host may have the name of another host's node.
func findInstance(instances []v1alpha1.WindowsInstance, name string) (*v1alpha1.WindowsInstance, error) {
	var found *v1alpha1.WindowsInstance
	var meant []string
	for i := range instances {
		one := &instances[i]
		for _, is := range []struct{ what, called string }{
			{"name", one.Name}, {"address", one.Spec.Address}, {"node", one.Status.NodeName},
		} {
			if is.called == name {
				found = one
				meant = append(meant, fmt.Sprintf("%s of host %s", is.what, one.Name))
				break
			}
		}
	}
	if len(meant) > 1 {
		return nil, fmt.Errorf("%s is the %s: use a name, address or node that only one host has", name,
			strings.Join(meant, ", and the "))
	}
	return found, nil
}
