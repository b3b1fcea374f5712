package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/openshift"
)

// crewHosts is the number of hosts that the rows of day 2 share. Some of these hosts use PowerShell as their SSH shell.
const crewHosts = 7

// crew are hosts of the shared stage that all rows of day 2 use. The hosts join once. The rows change settings of the
// cluster, so they run one after the other, and each row restores its changes.
type crew struct {
	*stage
	hosts []*fleet.Host
	// admin is a client that also knows OpenShift's kinds.
	admin client.Client
	// settings are the stage's settings. Each row restores them.
	settings v1alpha1.WindowsMachineConfigSpec
	means
	// version is the desired revision at the beginning of the current row. At the end of the row, it must be desired
	// again, because the same content has the same revision.
	version string
}

// joined holds the crew. The first row that needs the crew creates it.
var joined struct {
	sync.Mutex
	crew *crew
}

// dayTwo returns the crew for a row.
func dayTwo(t *testing.T) *crew {
	t.Helper()
	s := sharedStage(t)
	joined.Lock()
	defer joined.Unlock()
	if joined.crew == nil {
		c := newCrew(t, s, *options(0).Settings, onOpenShift(), s.hosts(t, crewHosts)...)
		c.join(t, c.hosts...)
		joined.crew = c
	}
	c := joined.crew
	c.row(t)
	return c
}

// newCrew joins all hosts of a stage with these settings as a crew.
func newCrew(t *testing.T, s *stage, settings v1alpha1.WindowsMachineConfigSpec, m means,
	hosts ...*fleet.Host) *crew {
	t.Helper()
	admin, err := openshift.Client(s.Cluster.Admin())
	must(t, err)
	return &crew{stage: s, hosts: hosts, admin: admin, settings: settings, means: m}
}

// row begins a row. When the row ends, row checks that no host had an SSH connection or a reboot.
func (c *crew) row(t *testing.T) {
	t.Helper()
	c.version = c.settled(t)
	before := map[string]string{}
	for _, h := range c.hosts {
		before[h.Name] = c.contacts(t, h)
	}
	t.Cleanup(func() {
		// everything is restored
		if _, err := c.settle(context.WithoutCancel(t.Context()), c.version); err != nil {
			t.Error(err)
		}
		for _, h := range c.hosts {
			if now := c.contacts(t, h); now != before[h.Name] {
				t.Errorf("%s was contacted over SSH or rebooted: before %s; after %s", h.Name, before[h.Name], now)
			}
		}
		if t.Failed() {
			t.Logf("the end of the operator's log: %s", c.Operator.Tail(6000))
		}
	})
}

// contacts describes how often a host was reached over SSH, and its current boot.
func (c *crew) contacts(t *testing.T, h *fleet.Host) string {
	t.Helper()
	facts, err := h.Machine.Host().System.Facts(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d SSH connections, boot %s", h.Server.Counters().Connections, facts.BootID)
}

// lookEvery is the interval between two checks of a host's state. A check sends no API request.
const lookEvery = 25 * time.Millisecond

// everywhere waits until a condition holds on every host of the crew. The function returns an error that says why the
// condition doesn't hold yet.
func (c *crew) everywhere(t *testing.T, what string, holds func(h *fleet.Host) error) {
	t.Helper()
	c.on(t, c.hosts, what, holds)
}

// on waits until a condition holds on the given hosts.
func (c *crew) on(t *testing.T, hosts []*fleet.Host, what string, holds func(h *fleet.Host) error) {
	t.Helper()
	began, deadline := time.Now(), time.Now().Add(soon)
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for _, h := range hosts {
		for {
			err := holds(h)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("waiting for %s: %s: %v; %s", what, h.Name, err, c.state(h))
			}
			select {
			case <-t.Context().Done():
				t.Fatal(t.Context().Err())
			case <-ticker.C:
			}
		}
	}
	t.Logf("%s: after %s", what, time.Since(began).Round(time.Millisecond))
}

// state describes a host's Node and the end of its daemon's log.
func (c *crew) state(h *fleet.Host) string {
	node := &corev1.Node{}
	if err := c.Client.Get(context.Background(), client.ObjectKey{Name: h.Name}, node); err != nil {
		return err.Error()
	}
	log, err := winos.ReadFile(h.Machine.Host().Files, contract.PathDaemonLog)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("annotations %v; its daemon says: %s", node.Annotations, log[max(0, len(log)-3000):])
}

// settled waits until every host of the crew is Ready at the desired revision, and returns this revision.
func (c *crew) settled(t *testing.T) (version string) {
	t.Helper()
	version, err := c.settle(t.Context(), "")
	must(t, err)
	return version
}

// settle waits until every host of the crew is Ready at the desired revision. If wanted is not empty, it must be the
// desired revision.
func (c *crew) settle(ctx context.Context, wanted string) (version string, err error) {
	err = c.Await(ctx, soon, "the crew to be Ready at the desired version",
		func(ctx context.Context) (bool, string, error) {
			config := &v1alpha1.WindowsMachineConfig{}
			if err := c.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
				return false, "", err
			}
			version = config.Status.DesiredRevision
			if wanted != "" && version != wanted {
				return false, fmt.Sprintf("%s is desired, not %s", version, wanted), nil
			}
			for _, h := range c.hosts {
				i, err := c.Instance(ctx, h)
				if err != nil {
					return false, "", err
				}
				if s := i.Status; s.Revision != version || s.Phase != v1alpha1.PhaseReady ||
					s.Reason() != string(contract.ReasonNodeReady) {
					return false, fmt.Sprintf("%s: %s %s %s %s, want %s", h.Name, s.Phase, s.Revision, s.Reason(),
						s.Message(), version), nil
				}
			}
			return true, "", nil
		})
	return version, err
}

// lendSettings changes the stage's settings until the row ends. If the change restarts services, they restart on all
// nodes at once.
func (c *crew) lendSettings(t *testing.T, edit func(spec *v1alpha1.WindowsMachineConfigSpec)) {
	t.Helper()
	spec := *c.settings.DeepCopy()
	edit(&spec)
	must(t, c.Configure(t.Context(), spec))
	t.Cleanup(func() {
		ctx, back := context.WithoutCancel(t.Context()), *c.settings.DeepCopy()
		if spec.Rollout.MaxUnavailable != nil {
			allAtOnce(&back)
			if err := c.Configure(ctx, back); err != nil {
				t.Error(err)
			}
			if _, err := c.settle(ctx, c.version); err != nil {
				t.Error(err)
			}
		}
		if err := c.Configure(ctx, c.settings); err != nil {
			t.Error(err)
		}
	})
}

// allAtOnce permits a change that restarts services to reach all nodes at once, and shortens the verification.
func allAtOnce(spec *v1alpha1.WindowsMachineConfigSpec) {
	all := intstr.FromString("100%")
	spec.Rollout.MaxUnavailable, spec.Rollout.SettleTime = &all, &metav1.Duration{Duration: time.Second}
}

// put creates an object, and deletes it when the row ends.
func (c *crew) put(t *testing.T, object client.Object) {
	t.Helper()
	if err := c.admin.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.admin.Delete(context.WithoutCancel(t.Context()), object)); err != nil {
			t.Error(err)
		}
	})
}

// take deletes an object.
func (c *crew) take(t *testing.T, object client.Object) {
	t.Helper()
	if err := c.admin.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// edit changes an existing object.
func edit[T client.Object](t *testing.T, c *crew, object T, change func(T)) {
	t.Helper()
	if err := c.edit(t.Context(), object, func() { change(object) }); err != nil {
		t.Fatal(err)
	}
}

// lend changes an existing object. When the row ends, it restores the object with the function that change returns.
func lend[T client.Object](t *testing.T, c *crew, object T, change func(T) (undo func(T))) {
	t.Helper()
	var undo func(T)
	edit(t, c, object, func(o T) { undo = change(o) })
	t.Cleanup(func() {
		if err := c.edit(context.WithoutCancel(t.Context()), object, func() { undo(object) }); err != nil {
			t.Error(err)
		}
	})
}

func (c *crew) edit(ctx context.Context, object client.Object, change func()) error {
	if err := c.admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return errors.New("the object is nil")
	}
	change()
	return c.admin.Patch(ctx, object, client.MergeFrom(before))
}

// rejected waits until the settings' status rejects a setting with a reason, and returns the message.
func (c *crew) rejected(t *testing.T, reason contract.Reason) (messages string) {
	t.Helper()
	code := fmt.Sprintf("W%d", reason.Number())
	c.await(t, code+" among the rejected settings", func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		err := c.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
		for _, r := range config.Status.RejectedSettings {
			if r.Code == code {
				messages += r.Message + "\n"
			}
		}
		return messages != "", fmt.Sprint(config.Status.RejectedSettings), err
	})
	return messages
}

// managed returns the managed services of a host with their processes.
func managed(t *testing.T, h *fleet.Host) map[string]winos.Service {
	t.Helper()
	all, host := map[string]winos.Service{}, h.Machine.Host()
	names, err := host.Services.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		service, err := host.Services.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(service.Description, contract.ManagedDescription) {
			all[name] = service
		}
	}
	return all
}

// pids returns the process ids of the managed services, by host and service.
func pids(t *testing.T, hosts ...*fleet.Host) map[string]uint32 {
	t.Helper()
	all := map[string]uint32{}
	for _, h := range hosts {
		for name, s := range managed(t, h) {
			all[h.Name+" "+name] = s.PID
		}
	}
	return all
}

// restarted checks that exactly these services have a new process. It ignores the daemon.
func restarted(t *testing.T, before map[string]uint32, hosts []*fleet.Host, names ...string) {
	t.Helper()
	for _, h := range hosts {
		for name, s := range managed(t, h) {
			was := before[h.Name+" "+name]
			if s.PID == 0 {
				t.Errorf("%s: %s does not run", h.Name, name)
			}
			if name != contract.ServiceDaemon && (was != s.PID) != slices.Contains(names, name) {
				t.Errorf("%s: service %s has process %d and had process %d; "+
					"it must be restarted only if the change affects it", h.Name, name, s.PID, was)
			}
		}
	}
}

// readers returns all managed services, because each reads its environment when it starts.
func readers() []string {
	return []string{
		contract.ServiceContainerd, contract.ServiceKubelet, contract.ServiceHybridOverlay, contract.ServiceKubeProxy,
		contract.ServiceCSIProxy, contract.ServiceExporter,
	}
}

// secrets checks that texts appear only in places that only administrators can read. They must not appear in the
// cluster's objects, in command lines, in logs, or in files of a host that other users may read.
func (c *crew) secrets(t *testing.T, texts ...string) {
	t.Helper()
	told := c.said(t)
	for _, h := range c.hosts {
		told["the command lines of "+h.Name] = strings.Join(h.Machine.CommandLines(), "\n")
		walk(t, h, `C:\`, func(path string, restricted bool) {
			if !restricted || strings.HasPrefix(path, contract.DirLog) || path == contract.PathMetrics {
				told[h.Name+" "+path] = string(hostFile(t, h, path))
			}
		})
	}
	for place, text := range told {
		for _, secret := range texts {
			if strings.Contains(text, secret) {
				t.Errorf("the secret %s appears in %s", secret, place)
			}
		}
	}
}

// undisrupted checks that no service was restarted.
func undisrupted(t *testing.T, before map[string]uint32, hosts ...*fleet.Host) {
	t.Helper()
	now := pids(t, hosts...)
	// The exporter may be in now but not in before, because after a join it starts only when it has a certificate.
	for name, pid := range before {
		if now[name] != pid {
			t.Errorf("service %s was restarted: its process was %d, and is %d", name, pid, now[name])
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sorted(lines []string) string {
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
