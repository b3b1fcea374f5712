package blueprint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// Paths of CNI plugins that have no constant in package contract.
const (
	pathWinOverlay = contract.DirCNI + `\win-overlay.exe`
	pathHostLocal  = contract.DirCNI + `\host-local.exe`
)

// payloadFor returns the payload without the files that nodes on this network don't need.
func payloadFor(network string, manifest payload.Manifest) payload.Manifest {
	manifest.Files = slices.DeleteFunc(slices.Clone(manifest.Files), func(f payload.File) bool {
		return !onNetwork(network, f.Path)
	})
	return manifest
}

// Needs reports whether nodes of this cluster need a program or plugin, given its network and platform.
func (f Facts) Needs(path string) bool {
	return onNetwork(f.NetworkType, path) && onPlatform(path, f.Platform)
}

// onNetwork reports whether nodes on this network need a program or plugin. An external network brings its
// own CNI plugins and kube-proxy. The programs that join a host to a network are needed on that network only.
func onNetwork(network, path string) bool {
	is := func(other string) bool { return strings.EqualFold(path, other) }
	switch {
	case is(contract.PathFlannel), is(contract.PathServiceWrapper):
		return network == NetworkFlannel
	case is(contract.PathHybridOverlay):
		return network != NetworkExternal && network != NetworkFlannel
	case is(contract.PathKubeProxy), contract.Within(contract.DirCNI, path):
		return network != NetworkExternal
	}
	return true
}

// binaries maps paths to a payload's files, and names of missing programs to reasons. All keys are in lower case.
type binaries struct {
	byPath  map[string]payload.File
	all     []payload.File
	reasons map[string]string
}

func newBinaries(manifest payload.Manifest) binaries {
	b := binaries{byPath: make(map[string]payload.File, len(manifest.Files)), all: manifest.Files,
		reasons: make(map[string]string, len(manifest.Missing))}
	for _, f := range manifest.Files {
		b.byPath[strings.ToLower(f.Path)] = f
	}
	for _, m := range manifest.Missing {
		b.reasons[strings.ToLower(m.Name)] = m.Reason
	}
	return b
}

func (b binaries) file(path string) payload.File { return b.byPath[strings.ToLower(path)] }

func (b binaries) has(path string) bool {
	_, ok := b.byPath[strings.ToLower(path)]
	return ok
}

// missing returns the names of the programs that the payload lacks, each with the payload's reason if there is one.
func (b binaries) missing(paths ...string) (names []string) {
	for _, path := range paths {
		if b.has(path) {
			continue
		}
		name := path[strings.LastIndex(path, `\`)+1:]
		if reason := b.reasons[strings.ToLower(name)]; reason != "" {
			name = fmt.Sprintf("%s (%s)", name, reason)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// The method without reports whether the payload lacks a feature's programs. If so, the part has the reason.
func (b binaries) without(feature payload.Feature, paths ...string) (part, bool) {
	missing := b.missing(paths...)
	if len(missing) == 0 {
		return part{}, false
	}
	return part{off: []Off{{Feature: feature, Reason: "the payload lacks " + strings.Join(missing, ", ")}}}, true
}

// files returns the binaries for this platform, as managed files. Each file lists the services that restart when the
// file changes. CNI plugins, containerd's shim and the credential provider list no services, because each use starts a
// new process. The daemon's file lists no service, because the daemon replaces itself.
func (b binaries) files(platform contract.Platform, services []contract.Service) []contract.File {
	out := make([]contract.File, 0, len(b.all))
	for _, f := range b.all {
		if !onPlatform(f.Path, platform) {
			continue
		}
		out = append(out, contract.File{Path: f.Path, Digest: f.Digest, Size: f.Size,
			Services: users(f.Path, services)})
	}
	return out
}

// users returns the sorted names of the services whose command starts the program at this path.
func users(path string, services []contract.Service) (names []string) {
	for _, s := range services {
		if slices.ContainsFunc(strings.Fields(s.Command),
			func(word string) bool { return strings.EqualFold(word, path) }) {
			names = append(names, s.Name)
		}
	}
	slices.SortFunc(names, cmp.Compare[string])
	return names
}

func onPlatform(path string, platform contract.Platform) bool {
	return !slices.ContainsFunc(payload.Parts(), func(p payload.Part) bool {
		return strings.EqualFold(p.Path, path) && p.Platform != "" && p.Platform != platform
	})
}
