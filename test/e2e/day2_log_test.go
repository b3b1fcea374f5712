package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// logLimit is the size limit of a log in these tests, in bytes. logFiles is the number of older files that are kept.
const (
	logLimit = 1 << 20
	logFiles = 2
)

func TestA16_LimitsOfLogsHoldForEveryManagedService(t *testing.T) {
	c := dayTwo(t)
	for _, path := range logsOf(t, c.hosts[0]) {
		age(t, c.hosts[0], path)
	}
	before := pids(t, c.hosts...)
	c.lendSettings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) {
		allAtOnce(spec)
		size, files := resource.MustParse("1Mi"), int32(logFiles)
		spec.Logging = v1alpha1.LoggingSpec{
			MaxSize: &size, MaxFiles: &files, MaxAge: &metav1.Duration{Duration: 48 * time.Hour},
			FlushInterval: &metav1.Duration{Duration: 7 * time.Second},
		}
	})
	runner := []string{"-flush-interval=7s"}
	told := map[string][]string{
		contract.ServiceKubelet: runner, contract.ServiceKubeProxy: runner,
		contract.ServiceHybridOverlay: {"--logfile-maxsize=1", "--logfile-maxbackups=2", "--logfile-maxage=2"},
	}
	c.everywhere(t, "the programs that rotate their own logs to get the limits", func(h *fleet.Host) error {
		services := managed(t, h)
		for name, flags := range told {
			for _, flag := range flags {
				if s := services[name]; !strings.Contains(s.Command+" ", flag+" ") || s.State != winos.ServiceRunning {
					return fmt.Errorf("service in state %s: %s lacks the flag %s: %s", s.State, name, flag, s.Command)
				}
			}
		}
		return nil
	})
	c.settled(t)
	restarted(t, before, c.hosts, contract.ServiceKubelet, contract.ServiceHybridOverlay, contract.ServiceKubeProxy)
	h := c.hosts[0]
	logs := logsOf(t, h)
	for name := range managed(t, h) {
		if logs[name] == "" {
			t.Errorf("service %s has no log", name)
		}
	}
	for name, path := range logs {
		// Skip two services whose logs the daemon doesn't rotate: the daemon itself, and the hybrid overlay, whose
		// stand-in doesn't rotate its own log.
		if name == contract.ServiceHybridOverlay || name == contract.ServiceDaemon {
			delete(logs, name)
			continue
		}
		overfill(t, h, path)
	}
	c.on(t, c.hosts[:1], "the daemon to rotate the other logs", func(h *fleet.Host) error {
		for name, path := range logs {
			info, err := h.Machine.Host().Files.Stat(path)
			if err != nil {
				return err
			}
			if info.Size > logLimit {
				return fmt.Errorf("the log of %s has %d bytes", name, info.Size)
			}
		}
		return nil
	})
	c.on(t, c.hosts[:1], "the deletion of all but the newest older files of each log", func(h *fleet.Host) error {
		for name, path := range logsOf(t, h) {
			if older := olderLogs(t, h, path); len(older) > logFiles {
				return fmt.Errorf("the log of %s keeps the older files %v", name, older)
			}
		}
		return nil
	})
}

// logsOf returns the paths of the logs of a host's managed services, by service.
func logsOf(t *testing.T, h *fleet.Host) map[string]string {
	t.Helper()
	logs := map[string]string{}
	for name, s := range managed(t, h) {
		switch _, after, _ := strings.Cut(s.Command, contract.DirLog+`\`); {
		case name == contract.ServiceDaemon:
			logs[name] = contract.PathDaemonLog
		case after != "":
			path, _, _ := strings.Cut(after, ".log")
			logs[name] = contract.DirLog + `\` + path + ".log"
		}
	}
	return logs
}

// age creates more old files of a log than may be kept.
func age(t *testing.T, h *fleet.Host, path string) {
	t.Helper()
	for i := range logFiles + 2 {
		extension := filepath.Ext(path)
		older := fmt.Sprintf("%s-2020010%d-000000%s", strings.TrimSuffix(path, extension), i+1, extension)
		must(t, winos.WriteFile(h.Machine.Host().Files, older, strings.NewReader("old\n"), winos.AccessInherit))
	}
}

// overfill appends to a log until it exceeds the limit, as its service would.
func overfill(t *testing.T, h *fleet.Host, path string) {
	t.Helper()
	log, err := h.Machine.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	must(t, err)
	_, err = log.Write([]byte(strings.Repeat("a line of a log that grows and grows\n", 40_000)))
	must(t, err)
	must(t, log.Close())
}

// olderLogs returns the names of the older files of a log.
func olderLogs(t *testing.T, h *fleet.Host, path string) (names []string) {
	t.Helper()
	dir, base := path[:strings.LastIndex(path, `\`)], path[strings.LastIndex(path, `\`)+1:]
	entries, err := h.Machine.Host().Files.List(dir)
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name, strings.TrimSuffix(base, filepath.Ext(base))+"-") {
			names = append(names, e.Name)
		}
	}
	return names
}
