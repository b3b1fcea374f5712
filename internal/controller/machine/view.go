package machine

import (
	"context"
	"fmt"
	"sync/atomic"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/lifecycle"
)

// excludeDrain on a Machine has whoever removes it leave its Node undrained. It is the user's word, and ours to follow, too.
const excludeDrain = "machine.openshift.io/exclude-node-draining"

// Origins tells what became of Machines, also before there is a Machine API.
type Origins struct {
	live client.Reader
	// cached is set once the controller runs.
	cached atomic.Pointer[client.Reader]
}

var _ lifecycle.Origins = (*Origins)(nil)

// Origin looks into the cache first. What is not there is looked for past it: a Machine may have lost the label by which the cache knows it.
func (o *Origins) Origin(ctx context.Context, instance *v1alpha1.WindowsInstance) (lifecycle.Origin, error) {
	source := instance.Spec.Source
	if source == nil || source.Kind != v1alpha1.SourceMachine {
		return lifecycle.Origin{}, nil
	}
	key, machine := client.ObjectKey{Namespace: contract.MachineAPINamespace, Name: source.Name}, &machinev1beta1.Machine{}
	if cached := o.cached.Load(); cached != nil {
		if err := (*cached).Get(ctx, key, machine); err == nil && machine.UID == source.UID {
			return origin(machine), nil
		}
	}
	err := o.live.Get(ctx, key, machine)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return lifecycle.Origin{}, nil
	case err != nil:
		return lifecycle.Origin{}, fmt.Errorf("reading Machine %s: %w", source.Name, err)
	case machine.UID != source.UID:
		return lifecycle.Origin{}, nil
	}
	return origin(machine), nil
}

func origin(machine *machinev1beta1.Machine) lifecycle.Origin {
	_, excluded := machine.Annotations[excludeDrain]
	return lifecycle.Origin{Exists: true, Drains: machine.Status.NodeRef != nil || excluded}
}
