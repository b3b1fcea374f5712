//go:build linux

package wine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// program is a program in the cache.
type program struct{ path, version string }

// kubernetesParts are the programs that take minutes to build.
func kubernetesParts() []string { return []string{payload.NameKubelet, payload.NameKubeProxy} }

// Minors returns the minor versions of Kubernetes before and after an upgrade in tests. The API server has the
// later version.
func Minors() (before, present string) { return "1.35", "1.36" }

// PrepareKubernetes builds the real kubelet and kube-proxy of both Minors if they aren't in the cache.
func PrepareKubernetes(ctx context.Context, progress io.Writer) error {
	before, present := Minors()
	for _, minor := range []string{before, present} {
		if _, err := kubernetesPrograms(ctx, minor, progress); err != nil {
			return err
		}
	}
	return nil
}

// kubernetesPrograms returns the real kubelet and kube-proxy of a minor version of Kubernetes. They are part of a
// payload that is built only for this purpose and stays in the cache. kubernetesPrograms also removes programs that
// were built from different sources and haven't been used for long.
func kubernetesPrograms(ctx context.Context, minor string, progress io.Writer) (map[string]program, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("finding the user's cache directory: %w", err)
	}
	cache := filepath.Join(user, "wmco-lab", "wine-kubernetes")
	if err = os.MkdirAll(cache, 0o700); err != nil {
		return nil, fmt.Errorf("making the cache directory: %w", err)
	}
	key, err := kubernetesKey()
	if err != nil {
		return nil, err
	}
	release, err := lock(ctx, filepath.Join(cache, "lock"))
	if err != nil {
		return nil, fmt.Errorf("waiting for kubelet and kube-proxy: %w", err)
	}
	defer release()
	dir := filepath.Join(cache, "programs-"+minor+"-"+key)
	if _, err = os.Stat(filepath.Join(dir, payload.ManifestName)); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(progress, "wine: building kubelet.exe and kube-proxy.exe of Kubernetes %s, once\n", minor)
		err = writePayload(ctx, dir, "0", progress, kubernetesParts(), nil, "--minors", minor)
	}
	if err != nil {
		return nil, fmt.Errorf("building kubelet and kube-proxy: %w", err)
	}
	if err = prune(cache, "programs-*", dir, time.Now()); err != nil {
		return nil, err
	}
	return programsOf(dir)
}

// programsOf finds kubelet and kube-proxy in a payload.
func programsOf(dir string) (map[string]program, error) {
	made, err := payload.OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the payload: %w", err)
	}
	found := map[string]program{}
	for _, name := range kubernetesParts() {
		for _, f := range made.Manifest().Files {
			if f.Name == name {
				found[name] = program{filepath.Join(dir, "sha256", f.Digest), f.Version}
			}
		}
	}
	return found, nil
}

// kubernetesKey returns a hash of everything that the programs are built from.
func kubernetesKey() (string, error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return "", fmt.Errorf("finding the sources: %w", err)
	}
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version())
	for _, pattern := range []string{"payload/kubernetes/*/go.*", "tools/payload/*.go"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return "", fmt.Errorf("listing %s: %w", pattern, err)
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				return "", fmt.Errorf("reading the sources: %w", err)
			}
			fmt.Fprintf(hash, "%d\n%s", len(content), content)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}
