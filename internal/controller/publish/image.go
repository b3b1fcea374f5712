package publish

import (
	"bytes"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payloadimage"
)

// Images are payloads out of container images; *payloadimage.Store is one.
type Images interface {
	// Want answers which payload is in use, or nil, and why it is not the one that is wanted. A repeated
	// call changes nothing.
	Want(image string, access payloadimage.Access) (*payload.Dir, *contract.Problem)
	// Changed gets an event when Want would answer otherwise than before.
	Changed() <-chan event.GenericEvent
}

var _ Images = (*payloadimage.Store)(nil)

// shipped is the payload that nodes get: that of the image which the settings name, or the operator's
// own. While the image is not there, the facts say why, and the payload before it is used; without any
// before it, the error is why. It is pulled as nodes pull, with what they keep of the revision before.
func (p *publisher) shipped(image string, facts *blueprint.Facts, before blueprint.Desired) (payload.Manifest, error) {
	if p.Images == nil {
		return p.Payload, nil
	}
	access, err := accessTo(facts.Kept(before, p.Now()))
	if err != nil {
		return payload.Manifest{}, err
	}
	dir, problem := p.Images.Want(image, access)
	switch {
	case dir == nil && problem != nil:
		return payload.Manifest{}, problem
	case problem != nil:
		facts.Rejected = append(slices.Clone(facts.Rejected), problem)
	}
	return dir.Manifest(), nil
}

// accessTo is how the operator reaches registries, by facts that nodes keep.
func accessTo(facts blueprint.Facts) (payloadimage.Access, error) {
	merged, _ := mirror.Merge(facts.Mirrors) // what is refused is told when the desired state is rendered
	rules, err := mirror.NewRules(merged)
	if err != nil {
		return payloadimage.Access{}, fmt.Errorf("reading the mirrors: %w", err)
	}
	if sources, _ := mirror.CheckSources(facts.Registries); sources != nil {
		if rules, err = rules.Restrict(*sources); err != nil {
			return payloadimage.Access{}, fmt.Errorf("reading which registries are allowed: %w", err)
		}
	}
	secret, err := mirror.ParsePullSecret(facts.PullSecret)
	if err != nil {
		secret = mirror.PullSecret{} // told when the desired state is rendered
	}
	var cas bytes.Buffer
	for _, b := range facts.Trust {
		cas.Write(b.PEM)
		cas.WriteByte('\n')
	}
	return payloadimage.Access{Rules: rules, Secret: secret, CA: cas.Bytes(), Proxy: facts.Proxy.Func()}, nil
}
