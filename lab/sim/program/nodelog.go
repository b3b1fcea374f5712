package program

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing/fstest"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const (
	logPath = "/logs/"
	// queryMinor is kubelet's first minor version where queries of node logs need no feature gate.
	queryMinor = 36
)

// If kubelet's configuration enables node logs, logHandler serves the directory C:\var\log. An example of a request is
// `kubectl get --raw /api/v1/nodes/NODE/proxy/logs/`.
func (k *kubelet) logHandler() http.Handler {
	mux := http.NewServeMux()
	c := k.config
	if !isTrue(c.EnableDebuggingHandlers, true) || !isTrue(c.EnableSystemLogHandler, true) {
		mux.HandleFunc(logPath, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "logs endpoint is disabled.", http.StatusMethodNotAllowed)
		})
		return mux
	}
	dir := logDir{k.Host.Files}
	files := http.FileServerFS(dir)
	gate, gated := c.FeatureGates["NodeLogQuery"]
	if isTrue(c.EnableSystemLogQuery, false) && (gate || !gated && k.minor() >= queryMinor) {
		files = queries(dir, files)
	}
	mux.Handle("GET "+logPath, http.StripPrefix(logPath, files))
	return mux
}

func isTrue(setting *bool, otherwise bool) bool {
	if setting == nil {
		return otherwise
	}
	return *setting
}

// minor returns the minor version of this kubelet.
func (k *kubelet) minor() int {
	parts := strings.SplitN(versionOf(k.Host.Files, k.Args[0]), ".", 3)
	minor, _ := strconv.Atoi(parts[1]) // versionOf returns a version with three parts
	return minor
}

// queries returns a handler for requests with ?query=. It passes all other requests to the handler `files`. If the
// query contains no slash, it is the name of a service. The handler searches for the service's log in the same three
// places as kubelet. If the query contains a slash, it is the name of a file. The real kubelet first searches the event
// log, but the simulated machine has none.
func queries(dir fs.FS, files http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := r.URL.Query()
		names, asked := values["query"]
		options := cmp.Or(values.Get("sinceTime"), values.Get("untilTime"), values.Get("tailLines"),
			values.Get("pattern"), values.Get("boot")) != ""
		isFile := len(names) == 1 && strings.ContainsAny(names[0], `/\`)
		switch {
		case !asked && !options:
			files.ServeHTTP(w, r)
		case strings.TrimSpace(strings.Join(names, "")) == "":
			http.Error(w, "query: Invalid value: may not be empty", http.StatusBadRequest)
		case r.URL.Path != "" && r.URL.Path != "/":
			http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
		case isFile && options:
			http.Error(w, "cannot specify file with options", http.StatusNotAcceptable)
		case isFile:
			r = r.Clone(r.Context())
			r.URL = &url.URL{Path: strings.ReplaceAll(names[0], `\`, "/")}
			files.ServeHTTP(w, r)
		case options:
			fmt.Fprintf(w, "\noptions present and query resolved to log files for %v\ntry without specifying options\n",
				names)
		default:
			for _, name := range names {
				copyLog(w, dir, name)
			}
		}
	})
}

// copyLog writes the content of a service's log.
func copyLog(w io.Writer, dir fs.FS, service string) {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		info, err := fs.Stat(dir, name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		content, err := fs.ReadFile(dir, name)
		if err != nil {
			fmt.Fprintf(w, "\nerror getting log for %s: %v\n", service, err)
			return
		}
		_, _ = w.Write(content) // the client may have disconnected
		return
	}
	fmt.Fprintf(w, "\nlog not found for %s\n", service)
}

// logDir makes C:\var\log available to Go's file server, which uses paths with slashes.
type logDir struct{ files winos.Files }

// Open implements fs.FS.
func (d logDir) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) || strings.ContainsAny(name, `\:`) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file := contract.DirLog
	if name != "." {
		file += `\` + strings.ReplaceAll(name, "/", `\`)
	}
	info, err := d.files.Stat(file)
	if err != nil {
		return nil, err
	}
	children := fstest.MapFS{}
	if !info.Dir {
		content, err := winos.ReadFile(d.files, file)
		if err != nil {
			return nil, err
		}
		children["log"] = &fstest.MapFile{Data: content, ModTime: info.ModTime}
		return children.Open("log")
	}
	list, err := d.files.List(file)
	if err != nil {
		return nil, err
	}
	for _, child := range list {
		mode := fs.FileMode(0)
		if child.Dir {
			mode = fs.ModeDir
		}
		children[child.Name] = &fstest.MapFile{Mode: mode, ModTime: child.ModTime}
	}
	return children.Open(".")
}
