package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Feature is the Windows feature that containers require.
const Feature = "Containers"

// ContainersFeature returns the state of Feature. A system without Windows features, such as Wine, counts as enabled:
// on such a system, only containerd itself can show whether containers run.
func ContainersFeature(ctx context.Context, system winos.System) (winos.FeatureState, error) {
	state, err := system.Feature(ctx, Feature)
	if errors.Is(err, winos.ErrUnsupported) {
		return winos.FeatureEnabled, nil
	}
	return state, err
}

// Preparations describes the changes that Prepare would make. If no change is needed, the list is empty. hostname is
// the wanted host name. If hostname is empty, the host keeps its current name. nodeName is the fact that the Node's
// name comes from.
func Preparations(facts winos.Facts, feature winos.FeatureState, hostname string, nodeName contract.Fact) (
	needs []string) {
	if renames(facts, hostname, nodeName) {
		needs = append(needs, fmt.Sprintf("rename the host from %s to %s", facts.Hostname, hostname))
	}
	switch feature {
	case winos.FeatureAbsent:
		needs = append(needs, "switch on the Windows feature "+Feature)
	case winos.FeaturePending:
		needs = append(needs, "reboot to finish the Windows feature "+Feature)
	}
	return needs
}

// `renames` returns true if the host must be renamed. Upper and lower case matter only for vSphere's cloud provider.
func renames(facts winos.Facts, hostname string, nodeName contract.Fact) bool {
	if nodeName == contract.FactFullHostname {
		return hostname != "" && facts.Hostname != hostname
	}
	return hostname != "" && !strings.EqualFold(facts.Hostname, hostname)
}

// Prepare makes the changes that Preparations lists. If a change needs a reboot to take effect, Prepare requests a
// reboot. If Prepare runs again before that reboot, it requests the reboot again.
func Prepare(ctx context.Context, host winos.Host, request contract.PrepareRequest) (contract.PrepareAnswer, error) {
	facts, err := host.System.Facts(ctx)
	if err != nil {
		return contract.PrepareAnswer{}, fmt.Errorf("reading the host's facts: %w", err)
	}
	answer := contract.PrepareAnswer{BootID: facts.BootID}
	if !facts.Admin {
		return answer, contract.NewProblem(contract.ReasonNotAdministrator, "the user is not an administrator")
	}
	feature, err := ContainersFeature(ctx, host.System)
	if err != nil {
		return answer, contract.NewProblem(contract.ReasonFeatureMissing, "asking for the feature %s: %v", Feature, err)
	}
	needs := Preparations(facts, feature, request.Hostname, request.NodeName)
	if len(needs) == 0 {
		return answer, nil
	}
	if _, err = state.Open(host.Files); err != nil { // don't change the host of another operator
		return answer, err
	}
	if err = stopDaemon(ctx, host.Services); err != nil { // the daemon would overwrite the state file
		return answer, err
	}
	stateFile, err := state.Open(host.Files)
	if err != nil {
		return answer, err
	}
	if renames(facts, request.Hostname, request.NodeName) {
		if err = rename(ctx, host.System, stateFile, facts.Hostname, request.Hostname); err != nil {
			return answer, err
		}
	}
	if feature == winos.FeatureAbsent {
		if feature, err = enable(ctx, host.System, stateFile); err != nil {
			return answer, err
		}
	}
	if !renames(facts, request.Hostname, request.NodeName) && feature == winos.FeatureEnabled {
		return answer, nil
	}
	if err = countReboot(stateFile, host.System.Now(), facts.BootID, needs); err != nil {
		return answer, err
	}
	if err = host.System.Reboot(ctx, "Preparing this host as a Kubernetes node: "+
		strings.Join(needs, "; ")); err != nil {
		return answer, contract.NewProblem(contract.ReasonPreparing, "asking for a reboot: %v", err)
	}
	answer.Rebooting = true
	return answer, nil
}

// Prepare reboots a host up to maxReboots times, and after that at most once per rebootPause. More reboots rarely help
// if the host gets its old name back or the feature stays pending. If there was no reboot for the time forgetReboot,
// the count starts again at zero.
const (
	maxReboots   = 3
	rebootPause  = time.Hour
	forgetReboot = 24 * time.Hour
)

// countReboot records a reboot before it is requested. If the previous reboots had no effect, it returns a problem, and
// the host isn't rebooted. Several requests during the same boot count as one reboot.
func countReboot(stateFile *state.File, now time.Time, boot string, needs []string) error {
	last := stateFile.Reboots
	if last == nil {
		last = &state.Reboots{}
	}
	since := winos.Age(now, last.Time)
	switch {
	case last.Count > 0 && last.BootID == boot:
		return nil
	case since >= forgetReboot:
		last = &state.Reboots{} // even if the clock was wrong, the host must not be blocked forever
	case last.Count >= maxReboots && since < rebootPause:
		return contract.NewProblem(contract.ReasonRebootIneffective,
			"%d reboots did not bring it about: %s; the next is at %s",
			last.Count, strings.Join(needs, "; "), last.Time.Add(rebootPause).UTC().Format(time.RFC3339))
	}
	stateFile.Reboots = &state.Reboots{Count: last.Count + 1, BootID: boot, Time: now}
	return stateFile.Save()
}

func rename(ctx context.Context, system winos.System, stateFile *state.File, before, hostname string) error {
	if stateFile.HostnameBefore == "" {
		stateFile.HostnameBefore = before
	}
	stateFile.HostnameSet = hostname
	if err := stateFile.Save(); err != nil {
		return err
	}
	if err := system.SetHostname(ctx, hostname); err != nil {
		return contract.NewProblem(contract.ReasonHostnameInvalid, "renaming the host from %s to %s: %v", before,
			hostname, err)
	}
	return nil
}

func enable(ctx context.Context, system winos.System, stateFile *state.File) (winos.FeatureState, error) {
	if !slices.Contains(stateFile.Features, Feature) {
		stateFile.Features = append(stateFile.Features, Feature)
	}
	if err := stateFile.Save(); err != nil {
		return "", err
	}
	if err := system.EnableFeature(ctx, Feature); err != nil {
		return "", contract.NewProblem(contract.ReasonFeatureMissing, "switching on the Windows feature %s: %v",
			Feature, err)
	}
	feature, err := system.Feature(ctx, Feature)
	if err != nil {
		return "", contract.NewProblem(contract.ReasonFeatureMissing, "asking for the feature %s: %v", Feature, err)
	}
	if feature == winos.FeatureAbsent {
		return "", contract.NewProblem(contract.ReasonFeatureMissing,
			"the Windows feature %s is still absent after switching it on", Feature)
	}
	return feature, nil
}
