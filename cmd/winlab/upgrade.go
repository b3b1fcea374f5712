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

// upgrade is one way of a fleet from one build of the product to another, as an observer sees it.
type upgrade struct {
	scene *scene.Scene
	// operator is the next build; empty keeps the present one, and only the payload is another.
	operator string
	// from and to are directories of payloads: the present one and, to be made, the next; empty for
	// the scene's own and one beside it.
	from, to string
	// changed are the parts of the payload that are others, by name, with their versions.
	changed map[string]string
	// budget is how many nodes may be unavailable at once.
	budget int
	// timeout for all of it.
	timeout time.Duration
	// show is called now and then. May be nil.
	show func(o *scene.Observer, instances []v1alpha1.WindowsInstance, rollout v1alpha1.RolloutStatus)
}

// upgradeReport is out/upgrade.json.
type upgradeReport struct {
	From           string `json:"from"`
	To             string `json:"to"`
	Nodes          int    `json:"nodes"`
	MaxUnavailable int    `json:"maxUnavailable"`
	// MostUnavailable is how many nodes were cordoned or not Ready at once because of the upgrade,
	// and MostNodes which; MostOfAll counts those that were so for whatever reason, as nodes are on
	// a machine that has too much to do.
	MostUnavailable int      `json:"mostUnavailable"`
	MostNodes       []string `json:"mostNodes"`
	MostOfAll       int      `json:"mostOfAll"`
	// Seconds from the start of the next build until every node was at its version and in service.
	Seconds float64 `json:"seconds"`
	// DisruptedSeconds from when the first node went out of service until the last was back.
	DisruptedSeconds float64 `json:"disruptedSeconds"`
	// SSHConnections that were made meanwhile, on all hosts together.
	SSHConnections int64 `json:"sshConnections"`
	// ChangedBytes is what is new in the payload: no node is to be sent anything else.
	ChangedBytes int64 `json:"changedBytes"`
	ChangedParts int   `json:"changedParts"`
	Parts        int   `json:"parts"`
	// Longest times of a node.
	MaxUnavailableSeconds float64 `json:"maxUnavailableSeconds"`
	MaxStagedSeconds      float64 `json:"maxStagedSeconds"`
	// PodsEnded counts pods that were moved, or ended otherwise.
	PodsEnded int           `json:"podsEnded"`
	PerNode   []nodeUpgrade `json:"perNode"`
	// Wrong is what must not have happened.
	Wrong []string `json:"wrong"`
}

// nodeUpgrade is what one node had of it.
type nodeUpgrade struct {
	Node string `json:"node"`
	// Order in which nodes were taken out of service, from 1.
	Order              int     `json:"order"`
	StagedBytes        int64   `json:"stagedBytes"`
	StagedSeconds      float64 `json:"stagedSeconds"`
	UnavailableSeconds float64 `json:"unavailableSeconds"`
	Absences           int     `json:"absences"`
	Version            string  `json:"version"`
}

// run upgrades and watches. The report is worth something whatever the error is.
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

// compare says how two payloads differ.
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

// rollout reads the version that is desired, and how far it has come.
func rollout(ctx context.Context, s *scene.Scene) (*v1alpha1.WindowsMachineConfig, error) {
	config := &v1alpha1.WindowsMachineConfig{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
		return nil, fmt.Errorf("reading the WindowsMachineConfig: %w", err)
	}
	return config, nil
}

// await waits until every node is at another version than before and in service, and the operator
// says that nothing is left to do.
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

// fill takes over what the observer saw.
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

// judge says what the upgrade must not have been like.
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

// connections are the SSH connections that each host has counted.
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

// changedParts reads a list of parts and gives each the next version.
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

// nextPayload is the version of the parts of the next payload that are others.
const nextPayload = "v1.36.4"
