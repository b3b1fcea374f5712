package kubectlwindows

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
)

const (
	// maxAnswer bounds one answer of the API server: five thousand Windows nodes with long lists of
	// images are half of it.
	maxAnswer = 128 << 20
	// maxEvents is how many events of one object are read.
	maxEvents = 200
)

// config is how the API server is reached, with answers that end.
func (p *plugin) config() (*rest.Config, error) {
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1 // the API server's own fairness is enough for a few requests
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return boundedTransport{next} })
	return config, nil
}

type boundedTransport struct{ next http.RoundTripper }

// WrappedRoundTripper lets a request that is late be cancelled.
func (b boundedTransport) WrappedRoundTripper() http.RoundTripper { return b.next }

// RoundTrip is http.RoundTripper.
func (b boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxAnswer)
	}
	return response, err
}

func (p *plugin) connect() (client.Client, error) {
	config, err := p.config()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err = errors.Join(clientscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return c, nil
}

// errNotInstalled says that the API server has none of our kinds.
var errNotInstalled = errors.New("the cluster has no WindowsInstances: the operator is not installed")

// snapshot reads the fleet in two lists and two single objects. What can't be read is named; only with
// partial are the instances of that, if it was the API server that refused them.
func (p *plugin) snapshot(ctx context.Context, c client.Client, partial bool) (diagnosis.Snapshot, error) {
	s := diagnosis.Snapshot{Now: p.now()}
	instances, err := p.instances(ctx, c)
	refused := errors.Is(err, errNotInstalled) || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
	if err != nil && (!partial || !refused) {
		return s, err
	}
	s.Instances, s.Unread = instances, unread(nil, "hosts", err)
	var nodes corev1.NodeList
	s.Unread = unread(s.Unread, "nodes", c.List(ctx, &nodes,
		client.MatchingLabels{corev1.LabelOSStable: string(corev1.Windows)}))
	s.Nodes = nodes.Items
	err = c.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, &s.Config)
	if !meta.IsNoMatchError(err) {
		s.Unread = unread(s.Unread, "the WindowsMachineConfig", client.IgnoreNotFound(err))
	}
	var lease coordinationv1.Lease
	err = c.Get(ctx, client.ObjectKey{Namespace: p.operator, Name: contract.LeaderLease}, &lease)
	s.Unread = unread(s.Unread, "the operator's lease", client.IgnoreNotFound(err))
	if client.IgnoreNotFound(err) == nil {
		s.Lease = &lease
	}
	return s, nil
}

func (p *plugin) instances(ctx context.Context, c client.Client) ([]v1alpha1.WindowsInstance, error) {
	var list v1alpha1.WindowsInstanceList
	err := c.List(ctx, &list, client.InNamespace(p.operator))
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return nil, errNotInstalled
	case err != nil:
		return nil, fmt.Errorf("listing WindowsInstances in namespace %s: %w", p.operator, err)
	}
	return list.Items, nil
}

// unread adds what could not be read.
func unread(all []string, what string, err error) []string {
	if err == nil {
		return all
	}
	return append(all, what+" could not be read: "+err.Error())
}

// events reads what happened to an object of a kind. A failure is named in the snapshot.
func events(ctx context.Context, c client.Client, s *diagnosis.Snapshot, kind, namespace,
	name string) []diagnosis.Event {
	var list corev1.EventList
	err := c.List(ctx, &list, client.InNamespace(namespace), client.Limit(maxEvents), client.MatchingFieldsSelector{
		Selector: fields.Set{"involvedObject.kind": kind, "involvedObject.name": name}.AsSelector()})
	s.Unread = unread(s.Unread, "events of "+kind+" "+name, err)
	all := make([]diagnosis.Event, 0, len(list.Items))
	for _, e := range list.Items {
		at := e.LastTimestamp
		switch {
		case e.Series != nil:
			at.Time = e.Series.LastObservedTime.Time
		case at.IsZero():
			at.Time = e.EventTime.Time
		}
		all = append(all, diagnosis.Event{Time: at, Type: e.Type, Reason: e.Reason, Object: kind + "/" + name,
			Message: e.Message, Count: e.Count})
	}
	return all
}

// findInstance finds an instance by its name, its address or its node.
func findInstance(instances []v1alpha1.WindowsInstance, name string) *v1alpha1.WindowsInstance {
	for _, of := range []func(i *v1alpha1.WindowsInstance) string{
		func(i *v1alpha1.WindowsInstance) string { return i.Name },
		func(i *v1alpha1.WindowsInstance) string { return i.Spec.Address },
		func(i *v1alpha1.WindowsInstance) string { return i.Status.NodeName },
	} {
		for i := range instances {
			if of(&instances[i]) == name {
				return &instances[i]
			}
		}
	}
	return nil
}
