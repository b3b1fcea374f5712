package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/lab/scene"
)

// upgrade is an upgrade of a fleet to the next build of the product.
type upgrade struct {
	scene *scene.Scene
	// operator is the program of the next operator. If it is empty, only the payload changes.
	operator string
	// from is the directory of the current payload, by default the scene's payload. The next payload is created in the
	// directory `to`, by default the scene's directory.
	from, to string
	// changed maps the name of each part of the payload that changes to its new version.
	changed map[string]string
	// budget is the number of nodes that may be unavailable at once.
	budget  int
	timeout time.Duration
	// show is called regularly to show the progress. It may be nil.
	show func(o *scene.Observer, instances []v1alpha1.WindowsInstance, rollout v1alpha1.RolloutStatus)
}

// upgradeReport is the content of out/upgrade.json.
type upgradeReport struct {
	From           string `json:"from"`
	To             string `json:"to"`
	Nodes          int    `json:"nodes"`
	MaxUnavailable int    `json:"maxUnavailable"`
	// MostUnavailable is the maximum number of nodes that were cordoned or not Ready at the same time because of the
	// upgrade. MostNodes are these nodes. MostOfAll also counts nodes that were unavailable for a different reason, for
	// example because the machine that runs the lab is overloaded.
	MostUnavailable int      `json:"mostUnavailable"`
	MostNodes       []string `json:"mostNodes"`
	MostOfAll       int      `json:"mostOfAll"`
	// Seconds is the time from the start of the next build until every node had the new version and was in service.
	Seconds float64 `json:"seconds"`
	// DisruptedSeconds is how long it took from the first disruption of a node until all nodes were in service again.
	DisruptedSeconds float64 `json:"disruptedSeconds"`
	SSHConnections   int64   `json:"sshConnections"`
	// ChangedBytes is the size of the parts that are new in the next payload. A node must receive only these parts.
	ChangedBytes int64 `json:"changedBytes"`
	ChangedParts int   `json:"changedParts"`
	Parts        int   `json:"parts"`
	// Maximum times over all nodes, in seconds.
	MaxUnavailableSeconds float64 `json:"maxUnavailableSeconds"`
	MaxStagedSeconds      float64 `json:"maxStagedSeconds"`
	// PodsEnded is how many pods ended during the upgrade. Evicted pods count as well.
	PodsEnded int           `json:"podsEnded"`
	PerNode   []nodeUpgrade `json:"perNode"`
	// Wrong describes events that must not happen during an upgrade.
	Wrong []string `json:"wrong"`
}

type nodeUpgrade struct {
	Node string `json:"node"`
	// Order is the position of the node in the order of disruptions. The first node has the position 1.
	Order              int     `json:"order"`
	StagedBytes        int64   `json:"stagedBytes"`
	StagedSeconds      float64 `json:"stagedSeconds"`
	UnavailableSeconds float64 `json:"unavailableSeconds"`
	Absences           int     `json:"absences"`
	Version            string  `json:"version"`
}

// run upgrades the fleet and observes the upgrade. If it returns an error, the report describes the upgrade until then.
func (u *upgrade) run(ctx context.Context) (report upgradeReport, err error) {
	s := u.scene
	report = upgradeReport{Nodes: len(s.Fleet.Hosts), MaxUnavailable: u.budget}
	from, next := cmp.Or(u.from, s.PayloadDir()), cmp.Or(u.to, filepath.Join(s.Dir, "payload-next"))
	if err = scene.ChangePayload(next, from, scene.Change{Versions: u.changed}); err != nil {
		return report, err
	}
	if err = report.compare(from, next); err != nil {
		return report, err
	}
	config, err := rollout(ctx, s)
	if err != nil {
		return report, err
	}
	report.From = config.Status.DesiredRevision
	observer, err := s.Observe(ctx)
	if err != nil {
		return report, err
	}
	connections := connections(s)
	began := time.Now()
	if err = s.Upgrade(ctx, u.operator, next); err == nil {
		err = u.await(ctx, observer, report.From)
	}
	report.Seconds = time.Since(began).Seconds()
	report.SSHConnections = connectionsSince(s, connections)
	err = errors.Join(err, observer.Stop())
	report.fill(observer)
	config, read := rollout(context.WithoutCancel(ctx), s)
	if read == nil {
		report.To = config.Status.DesiredRevision
	}
	return report, errors.Join(err, read)
}

func (r *upgradeReport) compare(from, to string) error {
	old, err := payload.OpenDir(from)
	if err != nil {
		return fmt.Errorf("reading the payload: %w", err)
	}
	next, err := payload.OpenDir(to)
	if err != nil {
		return fmt.Errorf("reading the next payload: %w", err)
	}
	r.Parts = len(next.Manifest().Files)
	for _, f := range next.Manifest().Files {
		if _, same := old.Blob(f.Digest); !same {
			r.ChangedParts++
			r.ChangedBytes += f.Size
		}
	}
	return nil
}

func rollout(ctx context.Context, s *scene.Scene) (*v1alpha1.WindowsMachineConfig, error) {
	config := &v1alpha1.WindowsMachineConfig{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
		return nil, fmt.Errorf("reading the WindowsMachineConfig: %w", err)
	}
	return config, nil
}

// await waits until every node has the new version and is in service, and until the operator reports that the rollout
// is complete. The parameter `before` is the desired version before the upgrade.
func (u *upgrade) await(ctx context.Context, observer *scene.Observer, before string) error {
	return u.scene.Await(ctx, u.timeout, "all nodes to be upgraded",
		func(ctx context.Context) (bool, string, error) {
			select {
			case err := <-u.scene.Operator.Ended():
				return false, "", fmt.Errorf("the operator ended by itself: %w; %s", err, u.scene.Operator.Tail(2000))
			default:
			}
			config, err := rollout(ctx, u.scene)
			if err != nil {
				return false, "", err
			}
			desired, status := config.Status.DesiredRevision, config.Status.Rollout
			list := &v1alpha1.WindowsInstanceList{}
			if err = u.scene.Client.List(ctx, list, client.InNamespace(contract.OperatorNamespace)); err != nil {
				return false, "", fmt.Errorf("listing instances: %w", err)
			}
			if u.show != nil {
				u.show(observer, list.Items, status)
			}
			if status.Phase == v1alpha1.RolloutHalted {
				return false, "", fmt.Errorf("the rollout is halted: %s", status.Message)
			}
			behind := []string{}
			for _, n := range observer.Nodes() {
				if desired == before || n.Version != desired || !n.Serves {
					behind = append(behind, n.Node)
				}
			}
			done := len(behind) == 0 && scene.RolloutIdle(config, len(list.Items))
			return done, fmt.Sprintf("%s %s: %s; behind: %s", status.Phase, desired, status.Message,
				strings.Join(behind, ", ")), nil
		})
}

func (r *upgradeReport) fill(observer *scene.Observer) {
	r.MostNodes = observer.Most()
	r.MostUnavailable, r.PodsEnded, r.Wrong = len(r.MostNodes), observer.Ended(),
		append([]string{}, observer.Wrong()...)
	r.MostOfAll = len(observer.MostOfAll())
	r.DisruptedSeconds = observer.Span().Seconds()
	for _, n := range observer.Nodes() {
		r.PerNode = append(r.PerNode, nodeUpgrade{
			Node: n.Node, Order: n.Order, StagedBytes: n.StagedBytes, StagedSeconds: n.StagedSeconds,
			UnavailableSeconds: n.UnavailableSeconds,
			Absences:           n.Absences, Version: n.Version,
		})
		r.MaxUnavailableSeconds = max(r.MaxUnavailableSeconds, n.UnavailableSeconds)
		r.MaxStagedSeconds = max(r.MaxStagedSeconds, n.StagedSeconds)
	}
}

// judge returns an error if the upgrade broke a rule. For example, too many nodes were unavailable at once.
func (r *upgradeReport) judge() error {
	var all []error
	if r.MostUnavailable > r.MaxUnavailable {
		all = append(all, fmt.Errorf("%d nodes were unavailable at once, and %d may be: %v", r.MostUnavailable,
			r.MaxUnavailable, r.MostNodes))
	}
	if r.SSHConnections > 0 {
		all = append(all, fmt.Errorf("%d SSH connections were made, and healthy nodes need none", r.SSHConnections))
	}
	for _, n := range r.PerNode {
		if n.StagedBytes != r.ChangedBytes {
			all = append(all, fmt.Errorf("%s was sent %d bytes, and %d are new", n.Node, n.StagedBytes, r.ChangedBytes))
		}
		if n.Absences > 1 {
			all = append(all, fmt.Errorf("%s was out of service %d times", n.Node, n.Absences))
		}
	}
	for _, what := range r.Wrong {
		all = append(all, errors.New(what))
	}
	return errors.Join(all...)
}

func connections(s *scene.Scene) map[string]int64 {
	all := map[string]int64{}
	for _, h := range s.Fleet.Hosts {
		all[h.Name] = h.Server.Counters().Connections
	}
	return all
}

func connectionsSince(s *scene.Scene, before map[string]int64) (sum int64) {
	for _, h := range s.Fleet.Hosts {
		sum += h.Server.Counters().Connections - before[h.Name]
	}
	return sum
}

// changedParts parses a comma-separated list of parts. It maps each part to its next version.
func changedParts(text string) (map[string]string, error) {
	all := map[string]string{}
	for _, name := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		if _, known := payload.PartNamed(name); !known {
			names := []string{}
			for _, p := range payload.Parts() {
				names = append(names, p.Name)
			}
			slices.Sort(names)
			return nil, fmt.Errorf("%q is no part of a payload; those are %s", name, strings.Join(names, ", "))
		}
		all[name] = nextPayload
	}
	return all, nil
}

const nextPayload = "v1.36.4"
