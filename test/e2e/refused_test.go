package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cloud"
	"github.com/windows-nodes/wmco/lab/sim"
)

// On vSphere, a host must have its Machine's name. The names of this MachineSet's Machines are too long for Windows, so
// its hosts can never join. The rollout of the other nodes must continue.
func TestA83_AMachineThatCanNeverJoinHoldsNoRollout(t *testing.T) {
	t.Parallel()
	o := rolling(2, 1)
	o.Scheduler = false
	o.Platform, o.Cloud = configv1.VSpherePlatformType, cloud.Options{Provision: 200 * time.Millisecond}
	o.Hosts.Edit = func(_ int, host *sim.Options) { host.Hostname = strings.ToLower(host.Hostname) }
	s := own(t, o)
	hosts := s.hosts(t, 2)
	s.join(t, hosts...)
	_, err := s.NewMachineSet(t.Context(), "lab-x7k2p-winworker", 1)
	must(t, err)
	s.await(t, "the Machine to be refused", func(context.Context) (bool, string, error) {
		for _, c := range s.config(t).Status.Conditions {
			if strings.Contains(c.Message, contract.ReasonMachineNameInvalid.Code()) {
				return true, "", nil
			}
		}
		return false, fmt.Sprint(s.config(t).Status.Conditions), nil
	})

	before := s.config(t).Status.DesiredRevision
	o.Settings.Logging.Debug = true
	must(t, s.Configure(t.Context(), *o.Settings))
	s.await(t, "both nodes to be at the new revision", func(context.Context) (bool, string, error) {
		status := s.config(t).Status
		there := status.DesiredRevision != before
		for _, h := range hosts {
			there = there && s.instance(t, h).Status.Revision == status.DesiredRevision
		}
		return there, status.Rollout.Message, nil
	})
}
