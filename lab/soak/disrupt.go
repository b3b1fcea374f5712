package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

// pace is the interval between two checks.
const pace = time.Second / 2

// disrupt makes one disruption of round n, and returns when the cluster shows its effect.
func (r *run) disrupt(ctx context.Context, d Disruption, n int) error {
	if err := sleep(ctx, d.After); err != nil {
		return err
	}
	switch d.Kind {
	case KindSetting:
		return r.setting(ctx, d.Setting, n)
	case KindReboot:
		return r.reboot(ctx, r.named(d.Hosts))
	case KindVanish:
		return r.vanish(ctx, r.named(d.Hosts), d.Away)
	case KindReplace:
		return r.replace(ctx, r.named(d.Hosts))
	case KindKill:
		return r.kill(ctx)
	case KindOutage:
		return r.outage(ctx, d.Away)
	}
	return fmt.Errorf("the disruption %q is unknown", d.Kind)
}

func (r *run) named(hosts []int) (all []*fleet.Host) {
	for _, i := range hosts {
		all = append(all, r.scene.Fleet.Hosts[i])
	}
	return all
}

// The method setting changes a setting and waits until a new revision is published. Otherwise the next check would find
// that everything has converged at the old revision.
func (r *run) setting(ctx context.Context, setting Setting, n int) error {
	var before string
	if err := r.await(ctx, "reading the revision", func(ctx context.Context) error {
		var err error
		before, err = r.revision(ctx)
		return err
	}); err != nil {
		return err
	}
	if err := r.await(ctx, "changing "+string(setting), func(ctx context.Context) error {
		return r.change(ctx, setting, n)
	}); err != nil {
		return err
	}
	return r.await(ctx, "another revision after a change of "+string(setting), func(ctx context.Context) error {
		now, err := r.revision(ctx)
		if err == nil && now == before {
			return fmt.Errorf("the revision is still %s", now)
		}
		return err
	})
}

func (r *run) revision(ctx context.Context) (string, error) {
	config := &v1alpha1.WindowsMachineConfig{}
	err := r.scene.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
	return config.Status.DesiredRevision, err
}

// The method reboot requests reboots with the annotation, as users do, and waits until each host has a new boot.
func (r *run) reboot(ctx context.Context, hosts []*fleet.Host) error {
	before := map[string]string{}
	for _, h := range hosts {
		before[h.Name] = r.boot(ctx, h)
		patch := client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+contract.RebootRequestedAnnotation+`":""}}}`))
		if err := r.await(ctx, "asking for a reboot of "+h.Name, func(ctx context.Context) error {
			node := &corev1.Node{}
			node.Name = h.Name
			return r.scene.Client.Patch(ctx, node, patch)
		}); err != nil {
			return err
		}
	}
	return r.await(ctx, "hosts to be rebooted", func(ctx context.Context) error {
		for _, h := range hosts {
			if now := r.boot(ctx, h); now == before[h.Name] {
				return fmt.Errorf("%s has not rebooted", h.Name)
			}
		}
		return nil
	})
}

// boot returns the id of a host's boot. If the host is off, it waits for the next boot.
func (r *run) boot(ctx context.Context, h *fleet.Host) string {
	boot, err := h.Machine.WaitBoot(ctx)
	if err != nil {
		return ""
	}
	return boot.ID
}

// vanish cuts the power of hosts without notice, and restores it after a while, even after an error.
func (r *run) vanish(ctx context.Context, hosts []*fleet.Host, away time.Duration) error {
	for _, h := range hosts {
		h.Machine.PowerCut()
		defer h.Machine.PowerOn()
	}
	return sleep(ctx, away)
}

// replace removes hosts from the list, checks that they are clean, and lists them again.
func (r *run) replace(ctx context.Context, hosts []*fleet.Host) error {
	if err := r.list(ctx, hosts, false); err != nil {
		return err
	}
	err := r.gone(ctx, hosts)
	for _, h := range hosts {
		if left := scene.Left(h); err == nil && len(left) > 0 {
			err = fmt.Errorf("host %s was removed and has left behind: %s", h.Name, strings.Join(left, "; "))
		}
	}
	return errors.Join(err, r.list(ctx, hosts, true))
}

// The method gone waits until the hosts' instances and nodes are deleted.
func (r *run) gone(ctx context.Context, hosts []*fleet.Host) error {
	return r.await(ctx, "hosts to be gone", func(ctx context.Context) error {
		return r.scene.WaitGone(ctx, pace, hosts...)
	})
}

// list adds hosts to the list of hosts, or removes them.
func (r *run) list(ctx context.Context, hosts []*fleet.Host, listed bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range hosts {
		r.listed[h] = listed
	}
	var all []*fleet.Host
	for _, h := range r.scene.Fleet.Hosts {
		if r.listed[h] {
			all = append(all, h)
		}
	}
	return r.await(ctx, "listing hosts", func(ctx context.Context) error { return r.scene.List(ctx, all...) })
}

// kill ends the operator like kill -9, and starts it again.
func (r *run) kill(ctx context.Context) error {
	if err := r.scene.Operator.Kill(); err != nil {
		return err
	}
	return r.scene.Operator.Start(ctx)
}

// The method outage stops the API server for a while, and always starts it again.
func (r *run) outage(ctx context.Context, away time.Duration) error {
	if err := r.scene.Cluster.StopAPIServer(); err != nil {
		return err
	}
	over := sleep(ctx, away)
	return errors.Join(over, r.scene.Cluster.StartAPIServer(context.WithoutCancel(ctx)))
}

// await repeats a short step until it succeeds. The API server may be down at the time, so await retries after any
// error until the limit is over.
func (r *run) await(ctx context.Context, what string, try func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pace, r.options.Limit, true, func(ctx context.Context) (bool, error) {
		if err := try(ctx); err != nil {
			if last == nil || ctx.Err() == nil {
				last = err
			}
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, errors.Join(err, last))
	}
	return nil
}

// sleep waits for the time d. If ctx ends first, it returns an error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
