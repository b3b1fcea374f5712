package blueprint

import (
	"bytes"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// confidential renders everything that depends on settings and not on programs. It returns the confidential part of the
// manifest (secret), the environment variables that are not confidential (public), and the settings that can't be used
// (rejected). It stores the log limits and kubelet's fragment in the input.
func confidential(in *Input, bin binaries) (secret contract.Confidential, public map[string]string,
	rejected []*contract.Problem, err error) {
	before := in.Previous.Confidential
	reject := func(problems []*contract.Problem) { rejected = append(rejected, problems...) }
	reject(in.Facts.Rejected)

	var flaws []*contract.Problem
	in.Logging, flaws = in.Logging.with(in.Spec.Logging)
	reject(flaws)
	if in.fragment, flaws, err = acceptedFragment(*in, bin); err != nil {
		return secret, nil, nil, rendering(contract.PathKubeletConfig, err)
	}
	reject(flaws)

	secret = contract.Confidential{Salt: bytes.Clone(in.Salt)}
	secret.Trust, secret.RegistryTrust, flaws = trustBundles(in.Facts, before, in.Now)
	reject(flaws)
	public, secret.Environment, flaws = environment(in.Facts.Proxy, in.Previous)
	reject(flaws)
	secret.PullSecret, flaws = pullSecret(in.Facts, before)
	reject(flaws)
	rules, refused := mirror.Merge(in.Facts.Mirrors)
	secret.Mirrors = rules
	sources, illegal := registrySources(in.Facts.Registries)
	secret.Registries = sources
	reject(append(refused, illegal...))
	return secret, public, rejected, nil
}

// acceptedFragment returns the user's kubelet fragment or, if it is refused, the last accepted one and a problem.
func acceptedFragment(in Input, bin binaries) (fragment, []*contract.Problem, error) {
	base, err := kubeletConfig(in, bin)
	if err != nil {
		return fragment{}, nil, err
	}
	kubelet := bin.file(contract.PathKubelet)
	var wanted []byte
	if in.Spec.Kubelet.Config != nil {
		wanted = in.Spec.Kubelet.Config.Raw
	}
	f, refused := parseFragment(wanted, base, kubelet)
	if refused == nil {
		return f, nil, nil
	}
	// If this kubelet doesn't accept the last accepted fragment either, use no fragment: the defaults are safe.
	f, _ = parseFragment(in.AcceptedKubelet, base, kubelet)
	return f, []*contract.Problem{refused}, nil
}

// pullSecret returns the cluster's pull secret or, if it is invalid, the previous one and a problem.
func pullSecret(f Facts, before contract.Confidential) ([]byte, []*contract.Problem) {
	raw := f.PullSecret
	if len(raw) == 0 {
		return nil, nil
	}
	parsed, err := mirror.ParsePullSecret(raw)
	if err != nil {
		problem, ok := contract.AsProblem(err)
		if !ok {
			problem = contract.NewProblem(contract.ReasonPullSecretInvalid, "the secret %s in %s is not understood",
				contract.PullSecret, contract.ConfigNamespace)
		}
		return before.PullSecret, []*contract.Problem{problem}
	}
	if unusable := parsed.Unusable(); len(unusable) > 0 {
		return bytes.Clone(raw), []*contract.Problem{contract.NewProblem(contract.ReasonPullSecretInvalid,
			"nodes can't use these entries of the pull secret: %s", contract.Few(unusable, named, "; "))}
	}
	return bytes.Clone(raw), nil
}

// registrySources returns the cluster's registry rules. Nodes may always pull the pause image, even if the rules forbid
// it, because every pod needs it. In the same way, Linux nodes may always pull the images of the OpenShift release.
func registrySources(raw contract.RegistrySources) (*contract.RegistrySources, []*contract.Problem) {
	checked, rejected := mirror.CheckSources(raw)
	if checked != nil && (checked.Restricted || len(checked.Blocked) > 0) {
		repository, _, _ := strings.Cut(pauseImage, ":")
		checked.Always = []string{repository}
	}
	return checked, rejected
}
