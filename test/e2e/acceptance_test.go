package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/test/acceptance"
)

// noContainer is the reason why rows with containers can't be shown in the lab.
const noContainer = "no container starts on simulated hosts"

// acceptance returns the options for a run of the acceptance list on a stage. The run uses the stage's kubeconfig and
// lists its own hosts, as on a user's cluster.
func (s *stage) acceptance(hosts ...*fleet.Host) acceptance.Options {
	o := acceptance.Options{Config: s.Cluster.Admin(), Progress: os.Stderr, JoinTimeout: soon, LeaveTimeout: soon,
		Timeout: soon, Pace: 200 * time.Millisecond, Alive: 2 * time.Second, Lacks: map[acceptance.Need]string{
			acceptance.NeedContainers: noContainer, acceptance.NeedScheduler: "this stage has no scheduler"}}
	for _, h := range hosts {
		address, settings := h.Entry()
		o.Hosts = append(o.Hosts, acceptance.Host{Address: address, Settings: settings})
	}
	return o
}

// verdicts checks that the given rows are shown, and that no row failed.
func verdicts(t *testing.T, report acceptance.Report, shown ...string) {
	t.Helper()
	for _, result := range report.Results {
		switch {
		case result.Verdict == acceptance.Failed:
			t.Errorf("%s failed: %s", result.Number, result.Reason)
		case result.Verdict == acceptance.Unshown && result.Reason == "":
			t.Errorf("%s can't be shown, but the result has no reason", result.Number)
		case (result.Verdict == acceptance.Shown) != slices.Contains(shown, result.Number):
			t.Errorf("row %s: %s %s, want it shown", result.Number, result.Verdict, result.Reason)
		}
	}
	if report.Leftover != "" {
		t.Errorf("left behind: %s", report.Leftover)
	}
	if len(report.Results) < 60 {
		t.Errorf("only %d rows have a result", len(report.Results))
	}
}

// lists tests only the given rows of the acceptance list on the existing nodes. All of them must be shown.
func (s *stage) lists(t *testing.T, rows ...string) {
	t.Helper()
	run := s.acceptance()
	run.Only = rows
	report, err := acceptance.Run(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	verdicts(t, report, rows...)
}

// program prepares a run of wmco-e2e as a user runs it.
func (s *stage) program(t *testing.T, args ...string) (c *exec.Cmd, output *bytes.Buffer) {
	t.Helper()
	path := filepath.Join(s.Dir, "wmco-e2e")
	if _, err := os.Stat(path); err != nil {
		root, err := cluster.ModuleRoot()
		must(t, err)
		args := append(cluster.CompileFlags(), "-ldflags", "-s -w", "-o", path, "./cmd/wmco-e2e")
		build := exec.CommandContext(t.Context(), "go", append([]string{"build"}, args...)...)
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building wmco-e2e: %v: %s", err, text)
		}
	}
	c = exec.CommandContext(t.Context(), path, append(args, "--pace", "200ms")...)
	c.Env = append(os.Environ(), "KUBECONFIG="+s.Cluster.Kubeconfig)
	output = &bytes.Buffer{}
	c.Stdout, c.Stderr = output, output
	return c, output
}

// hostFlag returns the value of the flag --host for a host.
func hostFlag(h *fleet.Host) string {
	address, settings := h.Entry()
	return "--host=" + address + "=" + settings
}

func TestA76_TheProgramRunsTheListAndTouchesNothingOfTheUser(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 2)
	s.join(t, hosts[0]) // this node belongs to the user
	users, before := s.listedNow(t), s.node(t, hosts[0])
	dir := t.TempDir()
	program, output := s.program(t, hostFlag(hosts[1]), "--first-hour", "--results", dir,
		"--lacks=containers="+noContainer+",scheduler=there is none")
	if err := program.Run(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	s.gone(t, hosts[1])
	s.nothingOfTheListIsLeft(t)
	if now := s.listedNow(t); !maps.Equal(now, users) {
		t.Errorf("after the run, windows-instances has %v, want %v", now, users)
	}
	if after := s.node(t, hosts[0]); after.UID != before.UID || after.Spec.Unschedulable {
		t.Errorf("the user's node was touched: %+v", after.Spec)
	}
	shown := junitRows(t, filepath.Join(dir, "junit.xml"))
	for _, row := range []string{"A02", "A04", "A05", "A07", "A12", "A32", "A76", "H05"} {
		if why, ok := shown[row]; !ok || why != "" {
			t.Errorf("row %s has the reason %q; output: %s", row, why, output)
		}
	}
	if shown["A39"] != noContainer || shown["H08"] != noContainer || !strings.HasPrefix(shown["H07"], "by hand") {
		t.Errorf("A39: %q, H08: %q, H07: %q", shown["A39"], shown["H08"], shown["H07"])
	}
	evidence := evidenceIn(t, dir)
	for _, part := range []string{"bundle/index.html", "bundle/status.txt", "bundle/objects/windowsinstances.yaml",
		"bundle/results/junit.xml", "bundle/results/index.html"} {
		if len(evidence[part]) == 0 {
			t.Errorf("the archive has no file %s", part)
		}
	}
	if text := evidence["bundle/status.txt"]; !strings.Contains(text, hosts[1].Name) {
		t.Errorf("the evidence was collected when the host was no longer a node: %s", text)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "index.html")); err != nil || !bytes.Contains(page, []byte("A02")) {
		t.Errorf("the HTML report: %v: %s", err, page)
	}
}

// evidenceIn returns the files in the archive of a first run.
func evidenceIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join(dir, "first-hour-*.tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("archives: %v, %v", archives, err)
	}
	file, err := os.Open(archives[0])
	must(t, err)
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the archive has mode %v: %v", info.Mode(), err)
	}
	unzipped, err := gzip.NewReader(file)
	must(t, err)
	files := map[string]string{}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		text, err := io.ReadAll(r)
		must(t, err)
		files[header.Name] = string(text)
	}
}

// junitRows returns the reason of each skipped row in JUnit's XML.
func junitRows(t *testing.T, path string) map[string]string {
	t.Helper()
	var read struct {
		Cases []struct {
			Name    string `xml:"name,attr"`
			Skipped struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
			Failure *struct{} `xml:"failure"`
		} `xml:"testsuite>testcase"`
	}
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, xml.Unmarshal(text, &read))
	rows := map[string]string{}
	for _, c := range read.Cases {
		number, _, _ := strings.Cut(c.Name, " ")
		if rows[number] = c.Skipped.Message; c.Failure != nil {
			t.Errorf("%s failed", c.Name)
		}
	}
	if len(rows) < 60 {
		t.Errorf("only %d rows have a result", len(rows))
	}
	return rows
}

func TestA76_WhatAKilledRunLeftIsRemovedAndTheUsersEntriesStay(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 2)
	s.join(t, hosts[0]) // this node belongs to the user
	users := s.listedNow(t)
	program, output := s.program(t, hostFlag(hosts[1]), "--results", t.TempDir())
	must(t, program.Start())
	s.await(t, "the run to list its host", func(ctx context.Context) (bool, string, error) {
		i, err := s.Instance(ctx, hosts[1])
		return err == nil && i.Status.Phase != v1alpha1.PhasePending, output.String(), client.IgnoreNotFound(err)
	})
	must(t, program.Process.Kill())
	_ = program.Wait()
	if now := s.listedNow(t); maps.Equal(now, users) {
		t.Fatal("the run cleaned up although it was killed")
	}
	cleaned, err := acceptance.Cleanup(t.Context(), s.acceptance())
	if err != nil {
		t.Fatal(err)
	}
	key, _ := hosts[1].Entry()
	if !slices.Contains(cleaned, "entry "+key+" of windows-instances") {
		t.Errorf("the clean-up removed %v", cleaned)
	}
	s.nothingOfTheListIsLeft(t)
	s.gone(t, hosts[1])
	s.ready(t, hosts[0])
	if now := s.listedNow(t); !maps.Equal(now, users) {
		t.Errorf("after the clean-up, windows-instances has %v, want %v", now, users)
	}
}

func TestA76_AHostThatTheUserListedIsNotTaken(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	users, node := s.listedNow(t), s.node(t, hosts[0])
	o := s.acceptance(hosts...)
	report, err := acceptance.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range report.Results {
		if result.Number == "A02" && (result.Verdict != acceptance.Unshown ||
			!strings.Contains(result.Reason, "it is not touched")) {
			t.Errorf("A02: %s %s", result.Verdict, result.Reason)
		}
		if result.Verdict == acceptance.Failed {
			t.Errorf("%s failed: %s", result.Number, result.Reason)
		}
	}
	if now := s.listedNow(t); !maps.Equal(now, users) {
		t.Errorf("after the run, windows-instances has %v, want %v", now, users)
	}
	if after := s.node(t, hosts[0]); after.UID != node.UID {
		t.Error("the user's Node was deleted and created again")
	}
}

func TestA76_TheListRunsOnAPlainCluster(t *testing.T) {
	t.Parallel()
	o := options(2)
	o.Kubernetes, o.Namespace, o.Scheduler = true, "windows", true
	o.Settings.Network.Type = v1alpha1.NetworkExternal
	s := own(t, o)
	s.linux(t)
	hosts := s.hosts(t, 2)
	run := s.acceptance(hosts...)
	run.Namespace = o.Namespace
	delete(run.Lacks, acceptance.NeedScheduler)
	for _, d := range acceptance.Disruptions() {
		run.Disrupt = append(run.Disrupt, acceptance.Disruption(d[0]))
	}
	before := s.config(t)
	report, err := acceptance.Run(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	verdicts(t, report, "A02", "A04", "A05", "A07", "A08", "A10", "A12", "A15", "A20", "A22", "A25", "A30", "A32",
		"A34", "A35", "A60", "A61", "A62", "A63", "A72", "A76")
	if after := s.config(t); !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		t.Errorf("after the run, the settings are %+v, want %+v", after.Spec, before.Spec)
	}
	s.gone(t, hosts...)
	list := &corev1.ConfigMap{}
	if err = s.Client.Get(t.Context(), client.ObjectKey{Namespace: o.Namespace, Name: contract.InstancesConfigMap},
		list); !apierrors.IsNotFound(err) {
		t.Errorf("the run created windows-instances and did not delete it: %v, %v", list.Data, err)
	}
}

// config reads the WindowsMachineConfig.
func (s *stage) config(t *testing.T) *v1alpha1.WindowsMachineConfig {
	t.Helper()
	config := &v1alpha1.WindowsMachineConfig{}
	must(t, s.Client.Get(t.Context(), client.ObjectKey{Name: contract.MachineConfigObject}, config))
	return config
}

// listedNow returns the data of windows-instances.
func (s *stage) listedNow(t *testing.T) map[string]string {
	t.Helper()
	list := &corev1.ConfigMap{}
	must(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: contract.OperatorNamespace,
		Name: contract.InstancesConfigMap}, list))
	return list.Data
}

// nothingOfTheListIsLeft checks that no object has the label or the mark of a run.
func (s *stage) nothingOfTheListIsLeft(t *testing.T) {
	t.Helper()
	objects := &corev1.ConfigMapList{}
	must(t, s.Client.List(t.Context(), objects))
	for _, o := range objects.Items {
		text, err := json.Marshal(o.ObjectMeta)
		must(t, err)
		if strings.Contains(string(text), "wmco-e2e") || strings.Contains(string(text), "e2e-entries") {
			t.Errorf("ConfigMap %s was not cleaned up: %s", o.Name, text)
		}
	}
}

// begun starts wmco-e2e with a host, and waits until the operator works on the host.
func (s *stage) begun(t *testing.T, h *fleet.Host, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	program, output := s.program(t, append(args, hostFlag(h))...)
	must(t, program.Start())
	s.await(t, "the run to list its host", func(ctx context.Context) (bool, string, error) {
		i, err := s.Instance(ctx, h)
		return err == nil && i.Status.Phase != v1alpha1.PhasePending, "", client.IgnoreNotFound(err)
	})
	return program, output
}

func TestA76_AnInterruptedRunCleansUpAndSaysWhatItFound(t *testing.T) {
	s := sharedStage(t)
	h, dir := s.hosts(t, 1)[0], t.TempDir()
	program, output := s.begun(t, h, "--results", dir)
	must(t, program.Process.Signal(os.Interrupt))
	_ = program.Wait()
	if code := program.ProcessState.ExitCode(); code != 4 {
		t.Errorf("the program ended with exit code %d: %s", code, output)
	}
	rows := junitRows(t, filepath.Join(dir, "junit.xml"))
	if !strings.Contains(rows["A02"], "interrupted meanwhile") || !strings.Contains(rows["A04"], "interrupted before") {
		t.Errorf("A02: %q, A04: %q; %s", rows["A02"], rows["A04"], output)
	}
	s.nothingOfTheListIsLeft(t)
	s.gone(t, h)
}

func TestA76_ARunOutlivesAnAPIServerThatGoesAway(t *testing.T) {
	t.Parallel()
	s := alone(t, options(1))
	h, dir := s.hosts(t, 1)[0], t.TempDir()
	program, output := s.begun(t, h, "--results", dir, "--rows", "A02,A04,A32")
	must(t, s.Cluster.StopAPIServer())
	must(t, s.Cluster.StartAPIServer(t.Context()))
	if err := program.Wait(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
	for _, row := range []string{"A02", "A04", "A32"} {
		if why, ok := junitRows(t, filepath.Join(dir, "junit.xml"))[row]; !ok || why != "" {
			t.Errorf("row %s has the reason %q; output: %s", row, why, output)
		}
	}
	s.nothingOfTheListIsLeft(t)
	s.gone(t, h)
}
