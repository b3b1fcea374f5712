package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// Plain reads the facts of a cluster without OpenShift, such as a kubeadm cluster. If no object of such a cluster
// contains a fact, the fact comes from the WindowsMachineConfig.
type Plain struct {
	common
}

var _ Source = (*Plain)(nil)

// NewPlain returns a reader for clusters without OpenShift.
func NewPlain(o Options) (*Plain, error) {
	c, err := newCommon(o)
	if err != nil {
		return nil, err
	}
	return &Plain{common: c}, nil
}

// Facts implements Source.
func (p *Plain) Facts(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec) (blueprint.Facts, error) {
	facts := blueprint.Facts{Platform: contract.PlatformNone,
		Network: blueprint.Network{NetworkType: blueprint.NetworkExternal}}
	var all []error
	for _, read := range []func(context.Context, v1alpha1.WindowsMachineConfigSpec, *blueprint.Facts) error{
		p.clusterVersion, p.apiServer, p.serverCA, p.clientCA, p.networks, p.flannel, p.dns, p.network, p.bootstrapper,
		p.userCA, p.credentials, p.consistent,
	} {
		all = append(all, read(ctx, spec, &facts))
	}
	if err := errors.Join(all...); err != nil {
		return blueprint.Facts{}, err
	}
	if facts.Proxy = p.plainProxy(spec.Proxy, facts); facts.Proxy.HTTP+facts.Proxy.HTTPS != "" {
		if err := facts.Unknown(); err != nil { // without these facts, NO_PROXY would be incomplete
			return blueprint.Facts{}, err
		}
	}
	p.resolve(ctx, &facts)
	facts.Mirrors = append(mirrorSets(contract.PullByDigest, spec.Mirrors.ImageDigestMirrors),
		mirrorSets(contract.PullByTag, spec.Mirrors.ImageTagMirrors)...)
	return facts, nil
}

func (p *Plain) clusterVersion(ctx context.Context, _ v1alpha1.WindowsMachineConfigSpec, facts *blueprint.Facts) error {
	return p.serverVersion(ctx, facts)
}

// bootstrapper adds a problem to facts.Lacks if hosts lack the rights to join. Joined nodes don't need these rights.
func (p *Plain) bootstrapper(ctx context.Context, _ v1alpha1.WindowsMachineConfigSpec, facts *blueprint.Facts) error {
	err := p.granted(ctx, facts)
	if problem, ok := contract.AsProblem(err); ok {
		facts.Lacks, err = append(facts.Lacks, problem), nil
	}
	return err
}

func (p *Plain) userCA(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec, facts *blueprint.Facts) error {
	return p.additionalCA(ctx, facts, spec.Trust.AdditionalCA)
}

func (p *Plain) network(_ context.Context, spec v1alpha1.WindowsMachineConfigSpec, _ *blueprint.Facts) error {
	if t := spec.Network.Type; t != "" && t != v1alpha1.NetworkExternal && t != v1alpha1.NetworkFlannel {
		return unsupported("%s is %q, which needs OpenShift", settingNetwork, t)
	}
	return nil
}

// credentials reads the pull secret. If the setting names a Secret that does not exist, nodes keep their credentials.
func (p *Plain) credentials(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec,
	facts *blueprint.Facts) (err error) {
	if spec.PullSecret == "" {
		return nil
	}
	what := fmt.Sprintf("the Secret %s/%s, which spec.pullSecret of the WindowsMachineConfig names,", p.Namespace,
		spec.PullSecret)
	facts.PullSecret, err = lastOf(ctx, &p.common, facts, origin{p.Cached, keyIn(p.Namespace, spec.PullSecret), what},
		credentials)
	if isAbsent(err) {
		facts.Rejected = append(facts.Rejected,
			contract.NewProblem(contract.ReasonPullSecretInvalid, "%s does not exist", what))
		facts.PullSecret, err = []byte(" "), nil
	}
	return err
}

func mirrorSets(kind contract.PullKind, all []v1alpha1.ImageMirrors) (sets []mirror.Set) {
	for _, m := range all {
		sets = append(sets, mirror.Set{Object: "spec.mirrors of the WindowsMachineConfig", Kind: kind,
			Source: m.Source, Mirrors: m.Mirrors, Policy: mirror.Policy(m.MirrorSourcePolicy)})
	}
	return sets
}
