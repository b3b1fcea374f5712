package soak

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/lab/fleet"
)

// measure counts everything. There are no disruptions during the count.
func (r *run) measure(ctx context.Context) (Figures, error) {
	f := Figures{Hosts: map[string]Host{}}
	var err error
	if f.Objects, err = r.objects(ctx); err != nil {
		return f, err
	}
	if f.Operator, err = r.operatorProcess(ctx); err != nil {
		return f, err
	}
	for _, h := range r.scene.Fleet.Hosts {
		if f.Hosts[h.Name], err = hostFigures(ctx, h); err != nil {
			return f, err
		}
	}
	if f.Stacks, err = stacks(); err != nil {
		return f, err
	}
	debug.FreeOSMemory() // don't count garbage
	f.Lab, err = process(os.Getpid())
	f.Lab.Goroutines = runtime.NumGoroutine()
	f.count()
	return f, err
}

// hostFigures counts what exists on one host.
func hostFigures(ctx context.Context, h *fleet.Host) (Host, error) {
	now, err := h.Snapshot(ctx)
	if err != nil {
		return Host{}, fmt.Errorf("looking at host %s: %w", h.Name, err)
	}
	f := Host{Open: h.Machine.OpenFiles(), Processes: len(h.Machine.Processes())}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if path, is := strings.CutPrefix(key, "file "); is {
			f.Files = append(f.Files, path)
		} else {
			f.Others = append(f.Others, key)
		}
	}
	return f, nil
}

// stacks counts goroutines of this process.
func stacks() (map[string]int, error) {
	profile := &bytes.Buffer{}
	if err := pprof.Lookup("goroutine").WriteTo(profile, 1); err != nil {
		return nil, fmt.Errorf("listing goroutines: %w", err)
	}
	return parseStacks(profile.String()), nil
}

// parseStacks reads the text form of a goroutine profile. For each stack, the profile has a line with the number of
// goroutines, and then the functions, innermost first. A stack is named after its outermost function of the product, or
// else of the lab, or else of any package. Functions that only start a goroutine don't show its purpose.
func parseStacks(profile string) map[string]int {
	began := regexp.MustCompile(`(?m)^(\d+) @ .*\n((?:#.*\n)+)`)
	function := regexp.MustCompile(`^#\s+\S+\s+(\S+)\+0x`)
	counts := map[string]int{}
	for _, stack := range began.FindAllStringSubmatch(profile, -1) {
		lines := strings.Split(strings.TrimSpace(stack[2]), "\n")
		n, _ := strconv.Atoi(stack[1]) // the pattern matches digits only
		var functions []string
		for _, line := range slices.Backward(lines) {
			if found := function.FindStringSubmatch(line); found != nil {
				functions = append(functions, found[1])
			}
		}
		for _, whose := range []string{module + "internal/", module, ""} {
			i := slices.IndexFunc(functions, func(f string) bool { return strings.HasPrefix(f, whose) })
			if i >= 0 {
				counts[functions[i]] += n
				break
			}
		}
	}
	return counts
}

// module is the prefix of the names of this project's functions.
const module = "github.com/windows-nodes/wmco/"

// expiring lists the kinds whose objects the API server or its controllers delete after an hour. Their number
// depends on the activity in that hour, so they aren't counted.
func expiring() []string { return []string{"events", "certificatesigningrequests"} }

// objects returns all objects by kind, as namespace/name.
func (r *run) objects(ctx context.Context) (map[string][]string, error) {
	config := rest.CopyConfig(r.scene.Cluster.Admin())
	config.WarningHandler = rest.NoWarnings{} // also count deprecated kinds
	all, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	lists, err := all.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("listing kinds of objects: %w", err)
	}
	c, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	objects := map[string][]string{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("reading kinds of objects: %w", err)
		}
		for _, kind := range list.APIResources {
			if !slices.Contains(kind.Verbs, "list") || slices.Contains(expiring(), kind.Name) ||
				kind.Name == "componentstatuses" {
				continue
			}
			found, err := c.Resource(version.WithResource(kind.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("listing %s: %w", kind.Name, err)
			}
			named := version.WithResource(kind.Name).GroupResource().String()
			for _, o := range found.Items {
				objects[named] = append(objects[named], strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
			}
		}
	}
	return objects, nil
}
