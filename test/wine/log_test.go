//go:build linux

package wine_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/wine"
)

// The real containerd logs through the real kube-log-runner, while a log agent has the log file open. On Windows, an
// open file can't be renamed. The log must still be rotated, and
// containerd must continue to write to it.
func TestA44_ALogGoesOnWhileSomebodyReadsIt(t *testing.T) {
	s := shared
	h := s.host(puller)
	log := machine(h).Path(contract.DirLog + `\containerd\containerd.log`)
	const full = 1 << 20
	size := resource.MustParse("1Mi")
	s.settings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) { spec.Logging.MaxSize = &size })
	defer s.settings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) { spec.Logging.MaxSize = nil })
	s.await(t, "the limit to hold", func(ctx context.Context) (bool, string, error) {
		for _, service := range s.manifest(t, h).Services {
			if service.Name == contract.ServiceContainerd {
				return service.Log.MaxSize == full, fmt.Sprintf("%+v", service.Log), nil
			}
		}
		return false, "there is no containerd", nil
	})
	read := s.reads(t, h, contract.DirLog+`\containerd\containerd.log`)
	fill(t, log, full)
	s.await(t, "the full log to be rotated", func(context.Context) (bool, string, error) {
		older, err := filepath.Glob(strings.TrimSuffix(log, ".log") + "-*.log")
		if err != nil {
			return false, "", err
		}
		info, err := os.Stat(log)
		if err != nil {
			return false, "", err
		}
		return len(older) > 0 && info.Size() < full, fmt.Sprintf("%d older files; the log has %d bytes", len(older),
			info.Size()), nil
	})
	const image = "127.0.0.1:1/nobody/home:after"
	if _, code := s.kubeletPulls(t, h, image); code == 0 {
		t.Fatal("a pull succeeded although no registry has the image")
	}
	s.await(t, "the next message of containerd to be in the log", func(context.Context) (bool, string, error) {
		content, err := os.ReadFile(log)
		return bytes.Contains(content, []byte(image)), fmt.Sprintf("%.2000s", content), err
	})
	if err := read(); err != nil {
		t.Errorf("the log agent failed: %v", err)
	}
}

// reads starts a log agent that opens a file. The returned function ends the agent.
func (s *stage) reads(t *testing.T, h *fleet.Host, path string) (end func() error) {
	t.Helper()
	exe := s.build(t, "reader.exe", func(ctx context.Context, to string) error {
		return wine.Build(ctx, wine.Program{Package: "./test/wine/testdata/reader"}, to)
	})
	return background(t, h, place(t, h, exe), path)
}

// fill appends lines to a log until it reaches a size.
func fill(t *testing.T, log string, size int64) {
	t.Helper()
	file, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(strings.Repeat(strings.Repeat("x", 127)+"\n", int(size/128)+1))
	if err != nil {
		t.Error(err)
	}
	if err = file.Close(); err != nil {
		t.Fatal(err)
	}
}
