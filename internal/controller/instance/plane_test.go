package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
)

// shelf contains the objects in an API server at one moment. Objects are never changed, only replaced.
type shelf struct {
	instances map[string]*v1alpha1.WindowsInstance
	nodes     map[string]*corev1.Node
	config    *v1alpha1.WindowsMachineConfig
	// places is the ConfigMap with the list of assigned slots, or nil if it doesn't exist.
	places *corev1.ConfigMap
	// memory is the Secret in which the publisher stores the settings. config is nil while the settings are deleted.
	memory *corev1.Secret
}

func (s shelf) clone() shelf {
	return shelf{instances: maps.Clone(s.instances), nodes: maps.Clone(s.nodes), config: s.config, places: s.places,
		memory: s.memory}
}

// plane is a simulated API server with few objects. It is so fast that hundreds of schedules can run. It checks
// resource versions, writes statuses separately, and keeps its history for caches that lag behind.
type plane struct {
	client.WithWatch
	now  shelf
	past []shelf
	// writes counts the writes. The resource version of the next written object is this number.
	writes int
	// lag returns by how many writes the cache lags behind. This is at most the number of writes since the operator
	// started.
	lag func() int
	// before and after are called at each write of the operator. If they return an error, the write fails with it.
	before, after func(old, wanted client.Object) error
	// requests contains certificate requests, which are signed at once. If it is nil, the server accepts no requests.
	requests map[string]*certificatesv1.CertificateSigningRequest
}

func newShelf() shelf {
	return shelf{instances: map[string]*v1alpha1.WindowsInstance{}, nodes: map[string]*corev1.Node{},
		config: &v1alpha1.WindowsMachineConfig{}}
}

// store replaces an object.
func (p *plane) store(o client.Object) {
	p.past = append(p.past[max(0, len(p.past)-8):], p.now.clone())
	p.writes++
	o.SetResourceVersion(fmt.Sprint(p.writes))
	switch o := o.(type) {
	case *corev1.Node:
		p.now.nodes[o.Name] = o
	case *v1alpha1.WindowsInstance:
		p.now.instances[o.Name] = o
	case *v1alpha1.WindowsMachineConfig:
		p.now.config = o
	case *corev1.ConfigMap:
		p.now.places = o
	}
}

// seen returns the state that the cache contains.
func (p *plane) seen() shelf {
	lag := p.lag()
	if lag == 0 || len(p.past) == 0 {
		return p.now
	}
	return p.past[max(0, len(p.past)-lag)]
}

func (s shelf) get(key client.ObjectKey, o client.Object) error {
	switch o := o.(type) {
	case *corev1.Node:
		if found, ok := s.nodes[key.Name]; ok {
			found.DeepCopyInto(o)
			return nil
		}
	case *v1alpha1.WindowsInstance:
		if found, ok := s.instances[key.Name]; ok {
			found.DeepCopyInto(o)
			return nil
		}
	case *v1alpha1.WindowsMachineConfig:
		if s.config != nil {
			s.config.DeepCopyInto(o)
			return nil
		}
	case *corev1.Secret:
		if s.memory != nil {
			s.memory.DeepCopyInto(o)
			return nil
		}
	case *corev1.ConfigMap:
		if s.places != nil {
			s.places.DeepCopyInto(o)
			return nil
		}
	case *metav1.PartialObjectMetadata:
		return nil // the CRD exists, so whoever deletes an instance wants its host removed
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, key.Name)
}

func (s shelf) list(list client.ObjectList) error {
	switch list := list.(type) {
	case *corev1.NodeList:
		for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
			list.Items = append(list.Items, *s.nodes[name].DeepCopy())
		}
	case *v1alpha1.WindowsInstanceList:
		for _, name := range slices.Sorted(maps.Keys(s.instances)) {
			list.Items = append(list.Items, *s.instances[name].DeepCopy())
		}
	default:
		return errors.New("the fake does not list these objects")
	}
	return nil
}

// Get and List read the state in the cache. The type live reads the current state.
func (p *plane) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if request, ok := o.(*certificatesv1.CertificateSigningRequest); ok && p.requests[key.Name] != nil {
		p.requests[key.Name].DeepCopyInto(request)
		return nil
	}
	// Read the current Secret: it was written when the settings changed, and no cache lags behind that far.
	if _, ok := o.(*corev1.Secret); ok {
		return p.now.get(key, o)
	}
	return p.seen().get(key, o)
}

func (p *plane) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return p.seen().list(list)
}

// live reads the current state of the simulated API server. It calls reading after each read of Nodes. The result of
// this read doesn't contain the changes that reading makes.
type live struct {
	p       *plane
	reading func()
}

func (l live) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return l.p.now.get(key, o)
}

func (l live) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	err := l.p.now.list(list)
	if _, nodes := list.(*corev1.NodeList); nodes {
		l.reading()
	}
	return err
}

// Patch writes the wanted Node, unless the stored Node has changed since the wanted Node was read.
func (p *plane) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	if leaving, ok := o.(*v1alpha1.WindowsInstance); ok && len(leaving.Finalizers) == 0 {
		delete(p.now.instances, leaving.Name) // the last finalizer is removed, so the instance is deleted
		return nil
	}
	if marked, ok := o.(*v1alpha1.WindowsInstance); ok {
		return p.mark(marked)
	}
	wanted, ok := o.(*corev1.Node)
	if !ok {
		return errors.New("the fake does not patch these objects")
	}
	old, ok := p.now.nodes[wanted.Name]
	switch {
	case !ok:
		return apierrors.NewNotFound(corev1.Resource("nodes"), wanted.Name)
	case old.ResourceVersion != wanted.ResourceVersion:
		return apierrors.NewConflict(corev1.Resource("nodes"), wanted.Name,
			errors.New("the Node was modified concurrently"))
	}
	if err := p.before(old, wanted); err != nil {
		return err
	}
	p.store(wanted.DeepCopy())
	wanted.ResourceVersion = p.now.nodes[wanted.Name].ResourceVersion
	return p.after(old, wanted)
}

// mark writes the annotations of an instance, unless the stored instance has changed since it was read.
func (p *plane) mark(wanted *v1alpha1.WindowsInstance) error {
	old, ok := p.now.instances[wanted.Name]
	resource := schema.GroupResource{Resource: "windowsinstances"}
	switch {
	case !ok:
		return apierrors.NewNotFound(resource, wanted.Name)
	case old.ResourceVersion != wanted.ResourceVersion:
		return apierrors.NewConflict(resource, wanted.Name, errors.New("the instance was modified concurrently"))
	}
	stored := old.DeepCopy()
	stored.Annotations = wanted.Annotations
	if err := p.before(old, stored); err != nil {
		return err
	}
	p.store(stored)
	stored.DeepCopyInto(wanted)
	return p.after(old, stored)
}

// Create creates the list of slots. It also creates certificate requests if the server accepts them.
func (p *plane) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	if _, ok := o.(*corev1.ConfigMap); ok {
		return p.Update(ctx, o)
	}
	if request, ok := o.(*certificatesv1.CertificateSigningRequest); ok && p.requests != nil {
		request.Status.Certificate = []byte("certificate")
		p.requests[request.Name] = request.DeepCopy()
		return nil
	}
	return apierrors.NewServiceUnavailable("away")
}

// Update replaces the list of slots, unless the stored list has changed since it was read.
func (p *plane) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	wanted, ok := o.(*corev1.ConfigMap)
	old := &corev1.ConfigMap{}
	if p.now.places != nil {
		old = p.now.places
	}
	if !ok || old.ResourceVersion != wanted.ResourceVersion {
		return apierrors.NewConflict(corev1.Resource("configmaps"), o.GetName(), errors.New("modified concurrently"))
	}
	if err := p.before(old, wanted); err != nil {
		return err
	}
	p.store(wanted.DeepCopy())
	return p.after(old, wanted)
}

// Delete deletes a Node.
func (p *plane) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	p.past = append(p.past[max(0, len(p.past)-8):], p.now.clone())
	delete(p.now.nodes, o.GetName())
	return nil
}

// Status returns a writer of instances' statuses.
func (p *plane) Status() client.SubResourceWriter { return statuses{p: p} }

type statuses struct {
	client.SubResourceWriter
	p *plane
}

func (s statuses) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	wanted, ok := o.(*v1alpha1.WindowsInstance)
	if !ok {
		return errors.New("the fake does not patch these objects")
	}
	old, ok := s.p.now.instances[wanted.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "windowsinstances"}, wanted.Name)
	}
	if old.ResourceVersion != wanted.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "windowsinstances"}, wanted.Name,
			errors.New("the instance was modified concurrently"))
	}
	if err := s.p.before(old, wanted); err != nil {
		return err
	}
	stored := old.DeepCopy()
	stored.Status = *wanted.Status.DeepCopy()
	s.p.store(stored)
	wanted.ResourceVersion = stored.ResourceVersion
	return s.p.after(old, wanted)
}

// change simulates a write of a Node by a different client.
func (p *plane) change(name string, edit func(*corev1.Node)) {
	if found, ok := p.now.nodes[name]; ok {
		n := found.DeepCopy()
		edit(n)
		p.store(n)
	}
}

// set simulates a user who changes the settings. If the object doesn't exist, the user creates it: with the settings
// that are in force, and with the change.
func (p *plane) set(edit func(*v1alpha1.WindowsMachineConfig)) {
	c := p.config().DeepCopy()
	c.Name = contract.MachineConfigObject
	edit(c)
	p.store(c)
	data, err := cluster.Memory(c, nil)
	if err != nil {
		panic(err)
	}
	p.now.memory = &corev1.Secret{Data: data}
}

// config returns the settings that are in force.
func (p *plane) config() *v1alpha1.WindowsMachineConfig {
	if p.now.config != nil {
		return p.now.config
	}
	c, err := cluster.Remembered(context.Background(), live{p, func() {}}, namespace)
	if err != nil {
		panic(err)
	}
	return c
}

// unset deletes the settings.
func (p *plane) unset() {
	p.past = append(p.past[max(0, len(p.past)-8):], p.now.clone())
	p.writes++
	p.now.config = nil
}
