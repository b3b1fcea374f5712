package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTwoClustersAtOnceAndNothingLeftOfThem(t *testing.T) {
	t.Parallel()
	deep := filepath.Join(t.TempDir(), strings.Repeat("a-long-name/", 12)) // longer than the path of a socket may be
	started := make(chan error, 2)
	clusters := make([]*Cluster, 2)
	for i, options := range []Options{{}, {DataDir: deep}} {
		go func() {
			options.Progress = os.Stderr
			var err error
			clusters[i], err = Start(t.Context(), options)
			started <- err
		}()
	}
	if err := errors.Join(<-started, <-started); err != nil {
		t.Error(err)
	}
	for _, c := range clusters {
		if c != nil {
			t.Cleanup(func() {
				if err := c.Stop(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if t.Failed() {
		return
	}

	first, second := clusters[0], clusters[1]
	if first.URL == second.URL || first.DataDir == second.DataDir {
		t.Errorf("two clusters share a URL or a directory: %s, %s; %s, %s", first.URL, second.URL, first.DataDir,
			second.DataDir)
	}
	makeNamespace(t, clientFor(t, first.Admin()), "only-here")
	_, err := clientFor(t, second.Admin()).CoreV1().Namespaces().Get(t.Context(), "only-here", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the object of one cluster also exists in the other cluster: %v", err)
	}

	for _, c := range clusters {
		pids := c.pids()
		if len(pids) != 3 {
			t.Errorf("the cluster has %d components", len(pids))
		}
		for range 2 {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		}
		for _, pid := range pids {
			if running(pid) {
				t.Errorf("process %d still runs", pid)
			}
		}
		if _, err := os.Stat(c.DataDir); !os.IsNotExist(err) {
			t.Errorf("the data directory was not removed: %s, %v", c.DataDir, err)
		}
		if err := c.StartAPIServer(t.Context()); err == nil {
			t.Error("a stopped cluster started again")
		}
	}
}

func TestTheAPIServerGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{})
	client := clientFor(t, c.Admin())
	makeNamespace(t, client, "before")

	for range 2 {
		if err := c.StopAPIServer(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "before", metav1.GetOptions{}); err == nil {
		t.Error("a stopped API server still answers")
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(t.Context()); err == nil {
		t.Error("a second start of a running API server succeeded")
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "before", metav1.GetOptions{}); err != nil {
		t.Errorf("after the restart: %v", err)
	}

	if err := c.PauseAPIServer(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := client.CoreV1().Namespaces().Get(short, "before", metav1.GetOptions{}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("a request to a paused API server: %v", err)
	}
	if err := c.ResumeAPIServer(); err != nil {
		t.Fatal(err)
	}
	makeNamespace(t, client, "after") // the controllers run again as well

	select {
	case err := <-c.Died():
		t.Errorf("Died reports a stop that was requested: %v", err)
	default:
	}
}

func TestAComponentThatDiesIsReported(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{})
	c.mu.Lock()
	manager := c.running[controllerManagerName]
	c.mu.Unlock()
	if err := manager.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var died *ComponentError
	if err := <-c.Died(); !errors.As(err, &died) || died.Component != controllerManagerName || len(died.Tail) == 0 {
		t.Errorf("Died reported %v", err)
	}
}

// writeScript writes a shell script that replaces a component.
func writeScript(t *testing.T, lines string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAStartThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	t.Parallel()
	binaries, err := Build(t.Context(), BuildOptions{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	no, err := exec.LookPath("false")
	if err != nil {
		t.Fatal(err)
	}
	idle := writeScript(t, "exec sleep 600")
	for name, test := range map[string]struct {
		breakIt   func(*Options)
		component string // empty: the error is not a *ComponentError
		want      string
	}{
		"a component that ends at once": {func(o *Options) { o.Binaries.APIServer = no }, apiServerName,
			"ended: exit status 1"},
		"a component that refuses its flags": {func(o *Options) { o.Binaries.Etcd = o.Binaries.APIServer }, etcdName,
			"unknown flag"},
		"a program that is not there": {func(o *Options) { o.Binaries.Etcd += ".absent" }, "", "starting etcd"},
		"a component that never gets ready": {
			func(o *Options) { o.Binaries.Etcd, o.StartTimeout = idle, 200*time.Millisecond }, etcdName,
			"was not healthy after",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := Options{Binaries: binaries, DataDir: filepath.Join(t.TempDir(), "data")}
			test.breakIt(&options)
			c, err := Start(t.Context(), options)
			if err == nil {
				t.Fatal("the cluster started, but it must fail", c.Stop())
			}
			var failed *ComponentError
			if errors.As(err, &failed) != (test.component != "") ||
				(failed != nil && failed.Component != test.component) ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v\nwant %q about %q", err, test.want, test.component)
			}
			if _, err := os.Stat(options.DataDir); !os.IsNotExist(err) {
				t.Errorf("the data directory was not removed: %v", err)
			}
		})
	}
}

func TestAStartWhosePortWasTakenBeginsAnew(t *testing.T) {
	t.Parallel()
	binaries, err := Build(t.Context(), BuildOptions{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(t.TempDir(), "tried")
	binaries.APIServer = writeScript(t, fmt.Sprintf(`
if [ ! -e %[1]q ]; then
	touch %[1]q
	echo "listen tcp: bind: address already in use" >&2
	exit 1
fi
exec %[2]q "$@"`, marker, binaries.APIServer))
	c := startCluster(t, Options{Binaries: binaries})
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("the first attempt did not fail: %v", err)
	}
	makeNamespace(t, clientFor(t, c.Admin()), "works")
}

// TestAdminIsACopy checks that a caller can change the config from Admin without affecting other callers.
func TestAdminIsACopy(t *testing.T) {
	t.Parallel()
	ca, err := newCA(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	config, err := ca.config("https://127.0.0.1:1", "ann", mastersGroup)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{admin: config}
	c.Admin().Host = corev1.NamespaceDefault
	if c.Admin().Host != "https://127.0.0.1:1" {
		t.Error("a change by one caller is visible to other callers")
	}
}
