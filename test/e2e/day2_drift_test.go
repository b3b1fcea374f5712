package e2e_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
)

func TestA13_DriftIsRepairedWithoutTheOperator(t *testing.T) {
	driftIsRepaired(t, dayTwo(t), func(drift) bool { return true })
}

// driftIsRepaired stops the operator. Then it makes one unwanted change on each host, until all changes that takes
// selects are tested. The daemon must repair every change without the operator.
func driftIsRepaired(t *testing.T, c *crew, takes func(d drift) bool) {
	t.Helper()
	ca := newCA(t, "one that somebody removes")
	const proxy = "http://proxy.invalid:3128"
	c.declare(t, c, declared{trustBundle: string(ca), atOnce: true,
		proxy: v1alpha1.ProxySpec{HTTPProxy: proxy, HTTPSProxy: proxy}})
	c.everywhere(t, "a proxy and a CA", func(h *fleet.Host) error {
		return errors.Join(trustsOnce(t, h, string(ca)),
			proxied(t, h, map[string]string{"HTTPS_PROXY": proxy}, ".svc"))
	})
	c.settled(t)
	if err := c.Operator.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Operator.Start(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	all := slices.DeleteFunc(drifts(ca), func(d drift) bool { return !takes(d) })
	for len(all) > 0 {
		now := all[:min(len(all), len(c.hosts))]
		all = all[len(now):]
		want := map[string]string{}
		for i := range now {
			want[c.hosts[i].Name] = picture(t, c.hosts[i])
		}
		for i, d := range now {
			d.drift(t, c.hosts[i])
			if picture(t, c.hosts[i]) == want[c.hosts[i].Name] {
				t.Fatalf("the change %q has no effect on the host", d.name)
			}
		}
		for i, d := range now {
			t.Run(d.name, func(t *testing.T) {
				c.on(t, []*fleet.Host{c.hosts[i]}, "repair", func(h *fleet.Host) error {
					if now := picture(t, h); now != want[h.Name] {
						return fmt.Errorf("%s\nwant %s", now, want[h.Name])
					}
					return nil
				})
			})
		}
	}
}

// drift is a change that a person makes on a host.
type drift struct {
	name string
	// network: the change affects a service or file of the network.
	network bool
	drift   func(t *testing.T, h *fleet.Host)
}

func drifts(ca []byte) []drift {
	return []drift{
		{"the command line of a service, with its dependants running", true, commandLineChanged},
		{"a service that is stopped, and its dependants with it", true, func(t *testing.T, h *fleet.Host) {
			t.Helper()
			must(t, h.Machine.Host().Services.Stop(t.Context(), contract.ServiceKubelet))
		}},
		{"a service that is deleted", true, servicesDeleted},
		{"a file that is changed, and one that is deleted", true, func(t *testing.T, h *fleet.Host) {
			t.Helper()
			files := h.Machine.Host().Files
			must(t, winos.WriteFile(files, contract.PathKubeletConfig, strings.NewReader("oops"),
				winos.AccessAdministrators))
			deleted := contract.PathCNIConfig
			// The operator doesn't install this network's services.
			if there, err := winos.Exists(files, deleted); err != nil || !there {
				deleted = contract.PathKubeletCA
			}
			must(t, files.Remove(deleted))
		}},
		{"a program that is changed, and one that is deleted, while they are not running", false,
			func(t *testing.T, h *fleet.Host) {
				t.Helper()
				host := h.Machine.Host()
				must(t, host.Services.Stop(t.Context(), contract.ServiceExporter))
				must(t, winos.WriteFile(host.Files, contract.PathWindowsExporter, strings.NewReader("MZ but another"),
					winos.AccessAdministrators))
				must(t, host.Files.Remove(contract.PathContainerdShim))
			}},
		{"a variable that is changed, and one that is removed", false, func(t *testing.T, h *fleet.Host) {
			t.Helper()
			environment := h.Machine.Host().Environment
			must(t, environment.Set(t.Context(), "no_proxy", "*"))
			must(t, environment.Unset(t.Context(), "HTTPS_PROXY"))
		}},
		{"a certificate that is removed", false, func(t *testing.T, h *fleet.Host) {
			t.Helper()
			must(t, h.Machine.Host().Trust.Remove(t.Context(), der(t, ca)))
		}},
	}
}

// servicesDeleted deletes the existing services among those that no other service depends on.
func servicesDeleted(t *testing.T, h *fleet.Host) {
	t.Helper()
	services, there := h.Machine.Host().Services, managed(t, h)
	for _, name := range []string{contract.ServiceCSIProxy, contract.ServiceKubeProxy, contract.ServiceFlannel} {
		if _, has := there[name]; has {
			must(t, services.Stop(t.Context(), name))
			must(t, services.Delete(t.Context(), name))
		}
	}
}

// commandLineChanged changes the command line of a service that other services depend on.
func commandLineChanged(t *testing.T, h *fleet.Host) {
	t.Helper()
	services := h.Machine.Host().Services
	service, err := services.Get(t.Context(), contract.ServiceContainerd)
	must(t, err)
	service.Command += " --log-level=trace"
	must(t, services.Apply(t.Context(), service.ServiceConfig))
}

// picture describes a host's managed services, their processes and files. It omits values that change with every start.
func picture(t *testing.T, h *fleet.Host) string {
	t.Helper()
	running := map[uint32]string{}
	for _, p := range h.Machine.Processes() {
		running[p.PID] = p.CommandLine
	}
	var all []string
	for name, s := range managed(t, h) {
		all = append(all, fmt.Sprintf("%s %s %s %v, running %s", name, s.State, s.Command, s.Dependencies,
			running[s.PID]))
	}
	for _, path := range []string{contract.PathKubeletConfig, contract.PathCNIConfig, contract.PathWindowsExporter,
		contract.PathContainerdShim, contract.PathKubeletCA} {
		content, err := winos.ReadFile(h.Machine.Host().Files, path)
		all = append(all, fmt.Sprintf("%s %x %v", path, sha256.Sum256(content), err))
	}
	environment, err := h.Machine.Host().Environment.All(t.Context())
	must(t, err)
	all = append(all, fmt.Sprint(environment), fmt.Sprintf("%d CAs", len(roots(t, h))))
	return sorted(all)
}
