package program

import (
	"context"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// containerd validates its configuration like the real containerd. It creates no named pipe. Instead of connecting to
// containerd, the stand-in for kubelet asks the service manager whether containerd is running.
func containerd(ctx context.Context, p *sim.Process) int {
	flags := newFlags("containerd")
	config := flags.String("config", `C:\Program Files\containerd\config.toml`, "")
	log := flags.String("log-file", "", "")
	level := flags.String("log-level", "info", "")
	tolerate(flags, "run-service no-console", "address root state service-name")
	if err := parse(flags, p.Args[1:]); err != nil {
		return refuse(p, err)
	}
	switch *level {
	case "trace", "debug", "info", "warn", "error", "fatal", "panic":
	default:
		return refuse(p, fmt.Errorf("not a valid log level: %q", *level))
	}
	if err := checkContainerdConfig(p.Host.Files, *config, flags.Changed("config")); err != nil {
		return refuse(p, err)
	}
	if err := unpack(p.Host.Files); err != nil {
		return refuse(p, err)
	}
	return idle{name: "containerd", logFile: *log}.run(ctx, p)
}

// unpack creates the files of an image layer, like a real containerd that has unpacked an image.
func unpack(files winos.Files) error {
	const dir = contract.DirContainerdData + `\root\io.containerd.snapshotter.v1.windows\snapshots\1\Files`
	if err := files.MkdirAll(dir, winos.AccessInherit); err != nil {
		return err
	}
	return winos.WriteFile(files, dir+`\License.txt`, strings.NewReader("a layer"), winos.AccessInherit)
}

// checkContainerdConfig validates the configuration file. If required is true, a missing file is an error.
func checkContainerdConfig(files winos.Files, path string, required bool) error {
	exists, err := winos.Exists(files, path)
	if err == nil && !exists && !required {
		return nil
	}
	content, err := winos.ReadFile(files, path)
	if err != nil {
		return fmt.Errorf("loading TOML: %w", err)
	}
	var config struct {
		Version int            `toml:"version"`
		Plugins map[string]any `toml:"plugins"`
	}
	if err := toml.Unmarshal(content, &config); err != nil {
		return fmt.Errorf("loading TOML: %s: %w", path, err)
	}
	if config.Version != 2 && config.Version != 3 {
		return fmt.Errorf("loading TOML: %s: expected containerd config version 2 or 3, got %d", path, config.Version)
	}
	return nil
}
