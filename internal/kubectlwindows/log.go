package kubectlwindows

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
)

const (
	// maxLog is the maximum number of bytes that are read of a log. By default, the last shownLog bytes are printed.
	maxLog   = 64 << 20
	shownLog = 64 << 10
	// followEvery is how often the log is read with the flag -f.
	followEvery = time.Second
)

// logOptions select the lines of a log. A zero value selects the lines in the last shownLog bytes.
type logOptions struct {
	lines  int
	since  time.Duration
	follow bool
}

func (p *plugin) logsCommand() *cobra.Command {
	service, file := "", ""
	var o logOptions
	command := &cobra.Command{
		Use:   "logs NODE",
		Short: "Show the log of the daemon or of a service on a node",
		Long: `Show the end of a log on a node: the log of the daemon, or of the service in --service. The log comes
from kubelet through the API server, so kubelet must run. You need the right get on nodes/proxy, but no
login on the host.`,
		Example: `  kubectl windows logs win-7
  kubectl windows logs win-7 --service kubelet --since 10m
  kubectl windows logs win-7 --tail 20 -f

  # List the logs
  kubectl windows logs win-7 --path /`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: p.completeHosts,
		RunE: func(command *cobra.Command, args []string) error {
			r, err := p.connect()
			if err != nil {
				return err
			}
			found, err := r.nodeOf(command.Context(), args[0])
			if err != nil {
				return err
			}
			return p.logs(command.Context(), r, found.node.Name, cmp.Or(file, logFile(service)), o)
		},
	}
	command.Flags().StringVar(&service, "service", "", "name of the service; the daemon by default")
	command.Flags().StringVar(&file, "path", "", `path of a file below C:\var\log, or / for a list`)
	command.Flags().IntVar(&o.lines, "tail", 0, "how many lines to show from the end")
	command.Flags().DurationVar(&o.since, "since", 0, "show only lines that are newer than this, such as 10m")
	command.Flags().BoolVarP(&o.follow, "follow", "f", false, "show new lines until Ctrl-C")
	_ = command.RegisterFlagCompletionFunc("service",
		cobra.FixedCompletions(services(), cobra.ShellCompDirectiveNoFileComp))
	return command
}

const daemonName = "wicd"

func services() []string { return append([]string{daemonName}, contract.LoggingServices()[1:]...) }

// logFile returns the path of a service's log, relative to C:\var\log.
func logFile(service string) string {
	if slices.Contains([]string{"", daemonName, "daemon"}, service) {
		service = contract.ServiceDaemon
	}
	return below(contract.LogFile(service))
}

// logs prints a log. With -f, it also prints new lines until the context ends, even if the node can't be reached for a
// while. It prints each error once.
func (p *plugin) logs(ctx context.Context, r *reader, node, file string, o logOptions) error {
	got, err := r.recent(ctx, node, file, o)
	if failed := p.writeLog(got.text); err != nil || failed != nil || !o.follow {
		return errors.Join(err, failed)
	}
	reported := ""
	for next := got.size; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
		got, err := r.part(ctx, node, file, fmt.Sprintf("bytes=%d-", next))
		switch {
		case err != nil && ctx.Err() != nil: // the user pressed Ctrl-C
		case err != nil:
			if text := diagnosis.Visible(err.Error()); text != reported {
				reported = text
				_, _ = fmt.Fprintln(p.ErrOut, "error:", text)
			}
		case got.size < next: // the log was rotated, so this is a new file
			next = 0
		default:
			if err = p.writeLog(got.text[min(max(0, next-got.from), int64(len(got.text))):]); err != nil {
				return err
			}
			next, reported = got.size, ""
		}
	}
}

// writeLog prints a part of a log. On a terminal, it replaces control characters, which the terminal would execute.
func (p *plugin) writeLog(text []byte) error {
	if printers.IsTerminal(p.Out) {
		text = []byte(diagnosis.Visible(string(text)))
	}
	_, err := p.Out.Write(text)
	return err
}

// part is a part of a log file. `from` is the offset of the text in the file. `size` is the size of the whole file, and
// `changed` is the time of the file's last change.
type part struct {
	text       []byte
	from, size int64
	changed    time.Time
}

// `recent` reads the lines that logOptions select. It starts with the end of the log, and reads longer parts until a
// part contains all these lines.
func (r *reader) recent(ctx context.Context, node, file string, o logOptions) (part, error) {
	if o.lines < 0 || o.since < 0 {
		return part{}, errors.New("--tail and --since must be above zero")
	}
	for most := int64(shownLog); ; most = min(most*16, maxLog) {
		got, err := r.end(ctx, node, file, most)
		if err != nil {
			return got, err
		}
		if _, rest, found := bytes.Cut(got.text, []byte("\n")); found && got.from > 0 {
			got.text = rest // the first line is incomplete
		}
		isWhole := got.from == 0 || most == maxLog || o.lines == 0 && o.since == 0
		if o.since > 0 {
			begins := false
			if got.text, begins, err = since(got, r.now().Add(-o.since)); err != nil {
				return part{}, err
			}
			isWhole = isWhole || begins
		}
		lines := bytes.SplitAfter(bytes.TrimSuffix(got.text, []byte("\n")), []byte("\n"))
		if o.lines > 0 && len(lines) >= o.lines {
			isWhole = true
			got.text = got.text[len(bytes.Join(lines[:len(lines)-o.lines], nil)):]
		}
		if isWhole {
			return got, nil
		}
	}
}

var (
	// klogTime matches the beginning of a line of klog: the host's local time without a year.
	klogTime = regexp.MustCompile(`^[IWEF](\d{4} \d\d:\d\d:\d\d\.\d{6})`)
	rfcTime  = regexp.MustCompile(`^.{0,24}?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))`)
)

// `since` returns the text from the first line that is not older than `begin`. If the log also has an older line,
// `begins` is true. A line without a time belongs to the line above it. klog writes local times without a time zone.
// The last line was written when the file was last changed, so these two times show the time zone.
func since(log part, begin time.Time) (text []byte, begins bool, err error) {
	lines := bytes.SplitAfter(log.text, []byte("\n"))
	times := make([]time.Time, len(lines))
	var shift time.Duration
	found := false
	for i, line := range slices.Backward(lines) {
		if match := rfcTime.FindSubmatch(line); match != nil {
			times[i], _ = time.Parse(time.RFC3339, string(match[1]))
		} else if match = klogTime.FindSubmatch(line); match != nil {
			at, _ := time.Parse("2006 0102 15:04:05.000000", strconv.Itoa(log.changed.Year())+" "+string(match[1]))
			if at.After(log.changed.Add(24 * time.Hour)) {
				at = at.AddDate(-1, 0, 0)
			}
			if !found {
				shift = at.Sub(log.changed).Round(15 * time.Minute)
			}
			times[i] = at.Add(-shift)
		}
		found = found || !times[i].IsZero()
	}
	if !found && len(bytes.TrimSpace(log.text)) > 0 {
		return nil, false, errors.New("--since: the lines of this log have no time; use --tail")
	}
	for i, at := range times {
		if !at.IsZero() && !at.Before(begin) {
			return bytes.Join(lines[i:], nil), begins, nil
		}
		begins = begins || !at.IsZero()
	}
	return nil, begins, nil
}

// end reads the last bytes of a file, at most `most` bytes. The file's path is relative to C:\var\log on the node.
func (r *reader) end(ctx context.Context, node, file string, most int64) (part, error) {
	got, err := r.part(ctx, node, file, fmt.Sprintf("bytes=-%d", most))
	if over := int64(len(got.text)) - most; over > 0 { // a server may ignore the requested range
		got.text, got.from = got.text[over:], got.from+over
	}
	return got, err
}

// part reads a range of a file. kubelet serves log files like a web server. If the range begins after the end of the
// file, the part is empty. After a failure, part also returns the text that it has read so far.
func (r *reader) part(ctx context.Context, node, file, span string) (got part, err error) {
	file = path.Clean("/" + strings.ReplaceAll(file, `\`, "/"))
	defer func() {
		if err != nil {
			err = fmt.Errorf("reading log %s of node %s: %w", file, node, err)
		}
	}()
	address := r.clients.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + node + "/proxy/logs" + file).URL()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return got, err
	}
	if file != "/" {
		request.Header.Set("Range", span)
	}
	answer, err := r.web.Do(request)
	if err != nil {
		return got, err
	}
	defer func() { _ = answer.Body.Close() }()
	got.text, err = io.ReadAll(io.LimitReader(answer.Body, maxLog))
	got.size = int64(len(got.text))
	got.changed, _ = http.ParseTime(answer.Header.Get("Last-Modified"))
	unit, size, _ := strings.Cut(answer.Header.Get("Content-Range"), "/")
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusPartialContent:
		begin, _, _ := strings.Cut(strings.TrimPrefix(unit, "bytes "), "-")
		got.from, _ = strconv.ParseInt(begin, 10, 64)
		got.size, _ = strconv.ParseInt(size, 10, 64)
	case http.StatusRequestedRangeNotSatisfiable:
		got.text = nil
		got.size, _ = strconv.ParseInt(size, 10, 64)
	default:
		var refused metav1.Status
		if json.Unmarshal(got.text, &refused) == nil && refused.Status == metav1.StatusFailure { // from the API server
			return part{}, &apierrors.StatusError{ErrStatus: refused}
		}
		return part{}, apierrors.NewGenericServerResponse(answer.StatusCode, "get", schema.GroupResource{
			Resource: "nodes"}, node, string(got.text), 0, true)
	}
	return got, err
}
