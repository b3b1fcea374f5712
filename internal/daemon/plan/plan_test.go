package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// wanted returns a desired state with three services: a runtime, kubelet, which depends on it, and a proxy, which
// depends on kubelet. kubelet has a file.
func wanted() plan.Desired {
	service := func(name, inputs string, dependencies ...string) plan.Service {
		return plan.Service{Inputs: inputs, ServiceConfig: winos.ServiceConfig{
			Name: name, Description: plan.Description(name), Command: `C:\k\` + name + `.exe`,
			Dependencies: dependencies,
		}}
	}
	return plan.Desired{
		Scope: plan.Everything,
		Services: []plan.Service{service("runtime", "r"), service("kubelet", "k", "runtime"),
			service("proxy", "p", "kubelet")},
		Files:       []plan.File{{Path: `C:\k\kubelet.conf`, Digest: "conf", Services: []string{"kubelet"}}},
		Environment: map[string]string{"HTTP_PROXY": "x"},
		Watched:     []string{"HTTP_PROXY", "NO_PROXY"},
	}
}

// holding returns the observations and changes of a host that is in the state wanted().
func holding() (plan.Observed, state.Changes) {
	have := plan.Observed{Services: map[string]winos.Service{}, Digests: map[string]string{`C:\k\kubelet.conf`: "conf"},
		Environment: map[string]string{"Http_Proxy": "x", "Path": "y"}}
	was := state.Changes{Services: map[string]state.Start{}, Files: []string{`C:\K\kubelet.conf`},
		Environment: map[string]state.Variable{"http_proxy": {Name: "HTTP_PROXY"}}}
	for i, s := range wanted().Services {
		have.Services[s.Name] = winos.Service{ServiceConfig: s.ServiceConfig, State: winos.ServiceRunning,
			PID: uint32(100 + i)}
		was.Services[s.Name] = state.Start{Inputs: s.Inputs, NotPID: 7}
	}
	return have, was
}

func TestSteps(t *testing.T) {
	t.Parallel()
	type world struct {
		want plan.Desired
		have plan.Observed
		was  state.Changes
	}
	held := func(kind plan.Kind, name string) func(plan.Step) bool {
		return func(s plan.Step) bool { return s.Kind == kind && s.Name == name }
	}
	change := func(w *world, name string, with func(*winos.Service)) {
		s := w.have.Services[name]
		with(&s)
		w.have.Services[name] = s
	}
	for name, c := range map[string]struct {
		change func(w *world)
		want   []string
	}{
		"no steps if everything is as desired": {func(*world) {}, nil},
		"everything on a fresh host": {
			func(w *world) { w.have, w.was = plan.Observed{}, state.Changes{} },
			[]string{
				"SetVariable HTTP_PROXY", `WriteFile C:\k\kubelet.conf`, "SetService runtime", "StartService runtime",
				"SetService kubelet", "StartService kubelet",
				"SetService proxy", "StartService proxy",
			},
		},
		"a stopped service is started": {
			func(w *world) {
				change(w, "proxy", func(s *winos.Service) { s.State, s.PID = winos.ServiceStopped, 0 })
			},
			[]string{"StartService proxy"},
		},
		"a service that is starting is waited for": {
			func(w *world) {
				change(w, "proxy", func(s *winos.Service) { s.State = winos.ServiceStartPending })
			},
			[]string{"StartService proxy"},
		},
		"a service that hangs while stopping is stopped for good, and started": {
			func(w *world) {
				change(w, "proxy", func(s *winos.Service) { s.State = winos.ServiceStopPending })
			},
			[]string{"StopService proxy", "StartService proxy"},
		},
		"a changed configuration alone is put right without a restart": {
			func(w *world) { change(w, "kubelet", func(s *winos.Service) { s.Description = "mine now" }) },
			[]string{"SetService kubelet"},
		},
		"a service that does not start at boot is put right without a restart": {
			func(w *world) { change(w, "kubelet", func(s *winos.Service) { s.NoAutoStart = true }) },
			[]string{"SetService kubelet"},
		},
		"a disabled service that is down is put right before it is started": {
			func(w *world) {
				change(w, "proxy", func(s *winos.Service) {
					s.State, s.PID, s.NoAutoStart = winos.ServiceStopped, 0, true
				})
			},
			[]string{"SetService proxy", "StartService proxy"},
		},
		"a service whose start type another program keeps changing is started all the same": {
			func(w *world) {
				change(w, "proxy", func(s *winos.Service) {
					s.State, s.PID, s.NoAutoStart = winos.ServiceStopped, 0, true
				})
				w.have.Held = held(plan.SetService, "proxy")
			},
			[]string{"StartService proxy"},
		},
		"a deleted service is created again": {
			func(w *world) { delete(w.have.Services, "proxy") },
			[]string{"SetService proxy", "StartService proxy"},
		},
		"new inputs restart the service and its dependants only": {
			func(w *world) { w.want.Services[1].Inputs = "k2" },
			[]string{"StopService proxy", "StopService kubelet", "StartService kubelet", "StartService proxy"},
		},
		"a restart that a crash prevented is made up for": {
			func(w *world) { w.was.Services["proxy"] = state.Start{Inputs: "p", NotPID: 102} },
			[]string{"StopService proxy", "StartService proxy"},
		},
		"a changed file is written, and the services that read it are restarted": {
			func(w *world) { w.have.Digests[`C:\k\kubelet.conf`] = "other" },
			[]string{`WriteFile C:\k\kubelet.conf`, "StopService proxy", "StopService kubelet", "StartService kubelet",
				"StartService proxy"},
		},
		"a service that left the manifest is deleted after its possible dependants have stopped": {
			func(w *world) {
				w.want.Services = w.want.Services[:2]
				w.want.Files[0].Digest = "new"
			},
			[]string{`WriteFile C:\k\kubelet.conf`, "StopService kubelet", "RemoveService proxy",
				"StartService kubelet"},
		},
		"bootstrap deletes no service": {
			func(w *world) { w.want.Scope, w.want.Services = plan.Bootstrap, w.want.Services[:2] },
			nil,
		},
		"a service that another program created again is left alone": {
			func(w *world) {
				w.want.Services = w.want.Services[:2]
				change(w, "proxy", func(s *winos.Service) { s.Description = "theirs" })
			},
			nil,
		},
		"a file that left the manifest is removed": {
			func(w *world) { w.was.Files = append(w.was.Files, `C:\k\old.conf`) },
			[]string{`RemoveFile C:\k\old.conf`},
		},
		"a watched variable that must not be set is removed": {
			func(w *world) { w.have.Environment["no_proxy"] = "z" },
			[]string{"UnsetVariable NO_PROXY"},
		},
		"a variable that left the manifest gets its previous value": {
			func(w *world) { w.want.Environment, w.want.Watched = nil, nil },
			[]string{"PutBack HTTP_PROXY"},
		},
		"access rights are first, and deletions last": {
			func(w *world) {
				w.have.Loose, w.have.Roots = []string{`C:\k`}, map[string]bool{"theirs": true}
				w.want.Roots = map[string][]byte{"theirs": {1}, "ours": {2}}
				w.was.Certificates = [][]byte{{3}}
				w.was.Files = append(w.was.Files, `C:\k\old.conf`)
				w.have.Digests[`C:\k\kubelet.conf`] = "other"
			},
			[]string{
				`Restrict C:\k`, "AddRoot ours", `WriteFile C:\k\kubelet.conf`, "StopService proxy",
				"StopService kubelet", "StartService kubelet", "StartService proxy",
				`RemoveFile C:\k\old.conf`, "RemoveRoot " + plan.Fingerprint([]byte{3}),
			},
		},
		"the pod network of an earlier revision is deleted after the service that created it": {
			func(w *world) {
				w.want.Network, w.was.Networks = "flannel.4097", []string{"flannel.4096"}
				w.want.Services = w.want.Services[:2]
			},
			[]string{"RemoveService proxy", "RemoveNetwork flannel.4096"},
		},
		"the pod network of an earlier revision is deleted while the service that creates networks is down": {
			func(w *world) {
				w.want.Network, w.was.Networks = "flannel.4097", []string{"flannel.4096", "flannel.4097"}
				w.want.Services[2].Inputs = "p2"
			},
			[]string{"StopService proxy", "RemoveNetwork flannel.4096", "StartService proxy"},
		},
		"a root store that can't be read is left alone": {
			func(w *world) {
				w.have.Roots, w.want.Roots, w.was.Certificates = nil, map[string][]byte{"ours": {2}}, [][]byte{{3}}
			},
			nil,
		},
		"while the resolver can't listen its files stay, and others go": {
			func(w *world) {
				w.want.RegistryUnknown = true
				w.was.Files = append(w.was.Files, `C:\k\containerd\registries\quay.io\hosts.toml`,
					`C:\k\old.conf`)
			},
			[]string{`RemoveFile C:\k\old.conf`},
		},
		"a file that another program keeps changing restarts no service": {
			func(w *world) {
				w.have.Digests[`C:\k\kubelet.conf`] = "other"
				w.have.Held = held(plan.WriteFile, `C:\k\kubelet.conf`)
			},
			nil,
		},
		"a file that can't be read restarts no service": {
			func(w *world) {
				delete(w.have.Digests, `C:\k\kubelet.conf`)
				w.have.Unreadable = map[string]*contract.Problem{
					`C:\k\kubelet.conf`: contract.NewProblem(contract.ReasonFileFailed, "x")}
			},
			nil,
		},
		"a service whose configuration another program keeps changing is not started with that configuration": {
			func(w *world) {
				change(w, "proxy", func(s *winos.Service) { s.Command, s.State = "theirs", winos.ServiceStopped })
				w.have.Held = held(plan.SetService, "proxy")
			},
			nil,
		},
		"a command that was changed while the process ran is put right without a restart": {
			func(w *world) {
				change(w, "proxy", func(s *winos.Service) { s.Command += " --theirs" })
				w.have.Sane = map[string]uint32{"proxy": 102}
			},
			[]string{"SetService proxy"},
		},
		"a process that may have been started with a changed command is restarted": {
			func(w *world) {
				change(w, "proxy", func(s *winos.Service) { s.Command += " --theirs" })
				w.have.Sane = map[string]uint32{"proxy": 77}
			},
			[]string{"StopService proxy", "SetService proxy", "StartService proxy"},
		},
		"a service that waits stays unchanged, and so do its dependants": {
			func(w *world) {
				w.want.Services[1].Waiting = contract.NewProblem(contract.ReasonNetworkPending, "x")
				change(w, "kubelet", func(s *winos.Service) { s.State = winos.ServiceStopped })
				delete(w.have.Services, "proxy")
			},
			nil,
		},
		"a service of another owner is not changed, and its dependants are not started": {
			func(w *world) {
				change(w, "kubelet", func(s *winos.Service) { s.Description = "theirs" })
				delete(w.was.Services, "kubelet")
				delete(w.have.Services, "proxy")
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world{want: wanted()}
			w.have, w.was = holding()
			c.change(&w)
			var got []string
			for _, s := range plan.Diff(w.want, w.have, w.was).Steps {
				got = append(got, string(s.Kind)+" "+s.Name)
				if s.Why == "" {
					t.Errorf("%s %s has no explanation", s.Kind, s.Name)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestConflictsAndWaitsAreNamed(t *testing.T) {
	t.Parallel()
	want := wanted()
	have, was := holding()
	theirs := have.Services["runtime"]
	theirs.Description = "Docker"
	have.Services["runtime"] = theirs
	delete(was.Services, "runtime")
	problem := contract.NewProblem(contract.ReasonNetworkPending, "no network yet")
	want.Files[0].Waiting, want.Services[2].Waiting = problem, problem
	got := plan.Diff(want, have, was)
	if len(got.Conflicts) != 1 || got.Conflicts[0].Reason != contract.ReasonConflictingSoftware {
		t.Errorf("conflicts %v", got.Conflicts)
	}
	if len(got.Waiting) != 1 || got.Waiting[0] != problem {
		t.Errorf("waiting %v", got.Waiting)
	}
}
