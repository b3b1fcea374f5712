package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// BuildOptions configure the output and the cache of Build. The zero value is valid.
type BuildOptions struct {
	// Progress receives a line at the start and the end of the build and every few seconds in between, with the
	// programs and the remaining work. If the cache is complete, nothing is written. Nil discards the lines.
	Progress io.Writer
	// CacheDir is the folder of the built programs of all versions. If empty, it is wmco-lab in the user's cache
	// directory.
	CacheDir string
	// AnyKubectl uses the kubectl on the PATH if it supports the commands in docs/install.md. This saves a minute of
	// processor time for building the pinned kubectl. Tests use the pinned kubectl.
	AnyKubectl bool
}

// Binaries are the paths of the programs of the control plane.
type Binaries struct {
	Etcd              string
	APIServer         string
	ControllerManager string
	// Kubectl is for users and scripts. This package doesn't run it.
	Kubectl string
}

// kubectlName is the only program that isn't a component.
const kubectlName = "kubectl"

// program is a program to build: its file name and its main package.
type program struct{ name, pkg string }

// programs returns the programs that Build builds.
func programs() []program {
	return []program{
		{name: etcdName, pkg: "go.etcd.io/etcd/server/v3"},
		{name: kubectlName, pkg: kubernetesModule + "/cmd/kubectl"},
		{name: controllerManagerName, pkg: modulePath + "/" + controlPlaneModule + "/controllermanager"},
		{name: apiServerName, pkg: kubernetesModule + "/cmd/kube-apiserver"},
	}
}

const (
	// progressInterval is the interval of progress lines during a build: short enough to show that the build isn't
	// hanging, and long enough for a readable log.
	progressInterval = 5 * time.Second
	// buildRecipe is part of the cache key. Increase it when programs must be rebuilt because the flags have changed.
	buildRecipe = "2"
)

// BuildExtra returns the path of a program of Kubernetes that only some tests need, such as kube-scheduler. If the
// program isn't in the cache, BuildExtra builds it. name is its folder in k8s.io/kubernetes/cmd.
func BuildExtra(ctx context.Context, options BuildOptions, name string) (path string, err error) {
	b, err := newBuilder(ctx, options, controlPlaneModule)
	if err != nil {
		return "", fmt.Errorf("preparing to build %s: %w", name, err)
	}
	b.programs = []program{{name: name, pkg: kubernetesModule + "/cmd/" + name}}
	if err = b.build(ctx); err != nil {
		return "", err
	}
	return b.path(name), nil
}

// BuildOther returns the path of a program of another nested module. If the program isn't in the cache, BuildOther
// builds it. module is the folder of the module. pkg is the main package. tags are separated by commas.
func BuildOther(ctx context.Context, options BuildOptions, module, name, pkg, tags string) (path string, err error) {
	b, err := newBuilder(ctx, options, module)
	if err != nil {
		return "", fmt.Errorf("preparing to build %s: %w", name, err)
	}
	b.programs, b.tags = []program{{name: name, pkg: pkg}}, tags
	if err = b.build(ctx); err != nil {
		return "", err
	}
	return b.path(name), nil
}

// Build returns the programs of the control plane and builds those that aren't in the cache. The first build takes some
// minutes on two cores. If the cache is complete, Build takes milliseconds. If two labs call it concurrently, one
// builds and the other waits. A build that is cancelled or fails leaves no partial program.
func Build(ctx context.Context, options BuildOptions) (Binaries, error) {
	b, err := newBuilder(ctx, options, controlPlaneModule)
	if err != nil {
		return Binaries{}, fmt.Errorf("preparing to build the control plane: %w", err)
	}
	found := ""
	if options.AnyKubectl {
		found = kubectlOnPath(ctx)
	}
	if found != "" {
		b.programs = slices.DeleteFunc(b.programs, func(p program) bool { return p.name == kubectlName })
	}
	if err = b.build(ctx); err != nil {
		return Binaries{}, err
	}
	binaries := b.binaries()
	if found != "" {
		binaries.Kubectl = found
	}
	return binaries, nil
}

// oldestKubectl is the oldest minor version of kubectl 1 whose kustomize and server-side apply behave like the
// pinned version.
const oldestKubectl = 25

// kubectlOnPath returns the path of a suitable kubectl, or an empty string.
func kubectlOnPath(ctx context.Context) string {
	path, err := exec.LookPath(kubectlName)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	output, err := exec.CommandContext(ctx, path, "version", "--client", "--output=json").Output()
	var told struct{ ClientVersion struct{ Minor string } }
	if err != nil || json.Unmarshal(output, &told) != nil {
		return ""
	}
	minor, err := strconv.Atoi(strings.TrimRight(told.ClientVersion.Minor, "+"))
	if err != nil || minor < oldestKubectl {
		return ""
	}
	return path
}

// build builds the programs that aren't in the cache.
func (b *builder) build(ctx context.Context) error {
	if len(b.missing()) == 0 {
		return nil
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return fmt.Errorf("making the build cache: %w", err)
	}
	release, err := acquire(ctx, filepath.Join(filepath.Dir(b.out), "build.lock"), func(waited time.Duration) {
		b.sayf("another lab is building the control plane; waiting, %s so far", waited)
	})
	if err != nil {
		return fmt.Errorf("waiting for another build of the control plane: %w", err)
	}
	defer release()
	return b.buildMissing(ctx)
}

// builder builds the programs of one cache key.
type builder struct {
	programs []program
	module   string // folder of the nested module
	tags     string
	out      string // folder of this key in the cache
	progress io.Writer
}

// controlPlaneModule is the folder of the module of the control plane.
const controlPlaneModule = "lab/controlplane"

func newBuilder(ctx context.Context, options BuildOptions, module string) (*builder, error) {
	root, err := ModuleRoot()
	if err != nil {
		return nil, err
	}
	b := &builder{programs: programs(), module: filepath.Join(root, filepath.FromSlash(module)),
		progress: options.Progress}
	if b.progress == nil {
		b.progress = io.Discard
	}
	cache := options.CacheDir
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("finding the user's cache directory: %w", err)
		}
		cache = filepath.Join(user, "wmco-lab")
	}
	key, err := b.key(ctx)
	if err != nil {
		return nil, err
	}
	b.out = filepath.Join(cache, key)
	return b, nil
}

// key is a hash of everything that the built programs depend on.
func (b *builder) key(ctx context.Context) (string, error) {
	hash := sha256.New()
	sources, err := b.sources()
	if err != nil {
		return "", fmt.Errorf("finding the sources: %w", err)
	}
	for _, name := range sources {
		content, err := os.ReadFile(filepath.Join(b.module, name))
		if err != nil {
			return "", fmt.Errorf("reading the pinned versions and the sources: %w", err)
		}
		fmt.Fprintf(hash, "%s %d\n%s", filepath.ToSlash(name), len(content), content)
	}
	version, err := b.goTool(ctx, "env", "GOVERSION").Output()
	if err != nil {
		return "", fmt.Errorf("asking for the Go version: %w", err)
	}
	fmt.Fprintf(hash, "%s %s/%s %s", version, runtime.GOOS, runtime.GOARCH, buildRecipe)
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// sources returns the files in the module that the programs are built from, starting with the files that pin versions.
func (b *builder) sources() ([]string, error) {
	names := []string{"go.mod", "go.sum"}
	err := filepath.WalkDir(b.module, func(file string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
			name, err := filepath.Rel(b.module, file)
			names = append(names, name)
			return err
		}
		return nil
	})
	return names, err
}

func (b *builder) binaries() Binaries {
	return Binaries{
		Etcd:              b.path(etcdName),
		APIServer:         b.path(apiServerName),
		ControllerManager: b.path(controllerManagerName),
		Kubectl:           b.path(kubectlName),
	}
}

func (b *builder) path(name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(b.out, name)
}

// The method missing returns the programs that aren't in the cache. A program is renamed into place when it is
// complete, so the existence of the file is sufficient.
func (b *builder) missing() []program {
	var missing []program
	for _, p := range b.programs {
		if _, err := os.Stat(b.path(p.name)); err != nil {
			missing = append(missing, p)
		}
	}
	return missing
}

func (b *builder) buildMissing(ctx context.Context) error {
	missing := b.missing()
	if len(missing) == 0 {
		return nil
	}
	flags := "-s -w"
	if filepath.Base(b.module) == filepath.Base(controlPlaneModule) {
		var err error
		if flags, err = b.linkerFlags(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	b.sayf("building %s from Go modules: minutes, but only the first time", named(missing))
	if err := b.buildAll(ctx, missing, flags); err != nil {
		return fmt.Errorf("building %s: %w", named(missing), err)
	}
	b.sayf("built in %s, kept in %s", time.Since(began).Round(time.Second), b.out)
	return nil
}

// The function named returns the names of programs as a text for messages.
func named(programs []program) string {
	var names []string
	for _, p := range programs {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// CompileFlags are the same flags as in the Makefile, so that both builds share the compile cache. They omit debug
// information, which the linker drops anyway.
func CompileFlags() []string { return []string{"-trimpath", "-gcflags=all=-dwarf=false"} }

// buildAll builds programs with one go command, which compiles shared packages once and uses both processors until the
// end. Each program is renamed into place when all are complete.
func (b *builder) buildAll(ctx context.Context, programs []program, linkerFlags string) error {
	temporary, err := os.MkdirTemp(b.out, "partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	flags := append(CompileFlags(), "-mod=readonly", "-buildvcs=false", "-tags", b.tags, "-ldflags", linkerFlags)
	var packages []string
	for _, p := range programs {
		packages = append(packages, p.pkg)
	}
	stale, err := b.stale(ctx, flags, packages)
	if err != nil {
		return err
	}
	output := newBuildOutput(stale)
	// With a trailing slash, the output is a directory even for a single program.
	cmd := b.goTool(ctx, slices.Concat([]string{"build", "-v", "-o", temporary + string(filepath.Separator)}, flags,
		packages)...)
	cmd.Stdout, cmd.Stderr = output, output
	stop := every(progressInterval, func() { b.sayf("%s", output.left()) })
	err = runChild(cmd)
	stop()
	if err != nil {
		return fmt.Errorf("%w; the go command said:\n%s\n"+
			"to see it all, run in %s: go build %s", err, output, b.module, strings.Join(packages, " "))
	}
	return b.install(temporary, programs)
}

// The method stale returns the packages that a build has to compile because they aren't in the cache of the go command.
// Earlier builds of the lab or the operator fill this cache.
func (b *builder) stale(ctx context.Context, flags, packages []string) ([]string, error) {
	args := slices.Concat([]string{"list", "-e", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, flags, packages)
	output, err := b.goTool(ctx, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("asking which packages to compile: %w", err)
	}
	return strings.Fields(string(output)), nil
}

// install renames built programs into place.
func (b *builder) install(dir string, programs []program) error {
	for _, p := range programs {
		built, err := executable(dir, p.pkg)
		if err != nil {
			return err
		}
		if err := os.Rename(built, b.path(p.name)); err != nil {
			return err
		}
	}
	return nil
}

// executable returns the file that the go command has built for a package. Its name is the last element of the package
// path without a version element. If dir contains only one file, executable returns this file.
func executable(dir, pkg string) (string, error) {
	built, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(built) == 1 {
		return strings.Join(built, ""), err
	}
	name := path.Base(pkg)
	if strings.HasPrefix(name, "v") && strings.Trim(name[1:], "0123456789") == "" {
		name = path.Base(path.Dir(pkg))
	}
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(dir, name), nil
}

// goTool prepares a go command in the folder of the module. It builds for this machine even if the environment of the
// caller selects another platform. A higher GOGC for compilers saves an eighth of the processor time.
func (b *builder) goTool(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.module
	cmd.Env = append(os.Environ(),
		"CGO_ENABLED=0", "GOWORK=off", "GOGC=400", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	return cmd
}

func (b *builder) sayf(format string, args ...any) {
	fmt.Fprintf(b.progress, "lab: %s\n", strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
}

// The function every calls `say` once per interval until the returned function is called. The returned function waits
// until the last call of `say` has ended.
func every(interval time.Duration, say func()) (stop func()) {
	ticker := time.NewTicker(interval)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticker.C:
				say()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(quit)
		<-ended
	}
}
