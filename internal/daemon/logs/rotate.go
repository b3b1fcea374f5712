package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// turnPause is the time between checks. A program that writes 10 MB/s exceeds its log's limit by up to 100 MB.
const turnPause = 10 * time.Second

// Rotator keeps logs within their limits. Follow may be called while Run runs.
type Rotator struct {
	host winos.Host
	mu   sync.Mutex
	logs []contract.Log
}

// NewRotator returns a Rotator without logs.
func NewRotator(host winos.Host) *Rotator { return &Rotator{host: host} }

// Follow replaces the logs and limits with a manifest's logs and limits. The Writer rotates the daemon's log.
func (r *Rotator) Follow(m contract.Manifest) {
	var logs []contract.Log
	for _, s := range m.Services {
		if s.Log != nil {
			logs = append(logs, *s.Log)
		}
	}
	if m.Daemon != nil && m.Daemon.Log != nil {
		log := *m.Daemon.Log
		log.Path, log.Rotates = contract.PathDaemonLog, true
		logs = append(logs, log)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = logs
}

// Run rotates the logs until ctx ends.
func (r *Rotator) Run(ctx context.Context) {
	loop.Run(ctx, clock.RealClock{}, nil, func(ctx context.Context) time.Duration {
		r.Turn(ctx)
		return turnPause
	})
}

// Turn checks all logs once. It logs a failure, and the next Turn retries.
func (r *Rotator) Turn(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	r.mu.Lock()
	logs := r.logs
	r.mu.Unlock()
	for _, l := range logs {
		if err := r.turn(ctx, l); err != nil {
			log.Info("a log can't be rotated", "path", l.Path, "detail", err.Error())
		}
		if err := Prune(r.host.Files, l, r.host.System.Now()); err != nil {
			log.Info("older logs can't be removed", "path", l.Path, "detail", err.Error())
		}
	}
}

// turn copies a full log to another file and empties the log. It ignores logs that are rotated by their programs.
func (r *Rotator) turn(ctx context.Context, l contract.Log) error {
	if l.Rotates || l.MaxSize <= 0 {
		return nil
	}
	info, err := r.host.Files.Stat(l.Path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (info.Dir || info.Size < l.MaxSize) {
		return nil
	}
	if err != nil {
		return err
	}
	aside, err := AsideName(r.host.Files, l.Path, r.host.System.Now())
	if err != nil {
		return err
	}
	err = r.copyAside(ctx, l.Path, aside)
	if errors.Is(err, winos.ErrNoSpace) {
		// Empty the log without a copy: a missing part of a log is better than a disk that the log has filled.
		logr.FromContextOrDiscard(ctx).Info("there is no room to keep an older log", "path", l.Path, "bytes", info.Size)
		err = r.host.Files.Remove(aside)
	}
	if err != nil {
		return errors.Join(err, r.host.Files.Remove(aside))
	}
	if err = r.host.Logs.Empty(l.Path); err != nil {
		// Delete the copy. Otherwise the next check would copy the same content again and displace older logs.
		return errors.Join(err, r.host.Files.Remove(aside))
	}
	return nil
}

// copyAside copies the content of a log, including lines that arrive during the copy. Lines that arrive after the copy,
// but before the log is emptied, are lost.
func (r *Rotator) copyAside(ctx context.Context, from, to string) (err error) {
	in, err := r.host.Files.Open(from)
	if err != nil {
		return fmt.Errorf("opening %s: %w", from, err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := r.host.Files.Create(to, winos.AccessInherit)
	if err != nil {
		return fmt.Errorf("creating %s: %w", to, err)
	}
	_, err = io.Copy(out, winos.Until(ctx, in))
	return errors.Join(err, out.Close())
}

// AsideName returns an unused file name for a copy of a log. The format is the same as in kube-log-runner.
func AsideName(files winos.Files, path string, now time.Time) (string, error) {
	stem, extension := split(path)
	for n := 1; ; n++ {
		name := stem + "-" + now.UTC().Format("20060102-150405")
		if n > 1 {
			name += fmt.Sprintf("-%d", n)
		}
		there, err := winos.Exists(files, name+extension)
		if err != nil || !there {
			return name + extension, err
		}
	}
}

func split(path string) (stem, extension string) {
	if dot := strings.LastIndexByte(path, '.'); dot > strings.LastIndexByte(path, '\\') {
		return path[:dot], path[dot:]
	}
	return path, ""
}

// Prune removes older files of a log that are too old or too many. It keeps files in use, and continues after an error.
func Prune(files winos.Files, l contract.Log, now time.Time) error {
	if l.MaxAgeSeconds <= 0 && l.MaxFiles <= 0 {
		return nil
	}
	dir := l.Path[:strings.LastIndexByte(l.Path, '\\')]
	entries, err := files.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	stem, extension := split(l.Path)
	prefix := strings.ToLower(stem[len(dir)+1:]) + "-"
	older := slices.DeleteFunc(entries, func(e winos.FileInfo) bool {
		name := strings.ToLower(e.Name)
		return e.Dir || !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, strings.ToLower(extension))
	})
	// Remove files with a future date first. They were written before the clock was set back, and they would displace
	// every new file. The file system's own clock may be slightly ahead.
	age := func(e winos.FileInfo) time.Duration { return winos.Age(now.Add(time.Minute), e.ModTime) }
	slices.SortFunc(older, func(a, b winos.FileInfo) int {
		return cmp.Or(cmp.Compare(age(a), age(b)), b.ModTime.Compare(a.ModTime))
	})
	var all []error
	for i, e := range older {
		tooMany := l.MaxFiles > 0 && i >= l.MaxFiles
		tooOld := l.MaxAgeSeconds > 0 && now.Sub(e.ModTime) > time.Duration(l.MaxAgeSeconds)*time.Second
		if !tooMany && !tooOld {
			continue
		}
		if err = files.Remove(dir + `\` + e.Name); err != nil && !errors.Is(err, winos.ErrInUse) {
			all = append(all, fmt.Errorf("removing %s: %w", e.Name, err))
		}
	}
	return errors.Join(all...)
}
