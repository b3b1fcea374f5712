package blueprint

import (
	"bytes"

	"github.com/pelletier/go-toml/v2"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// What users of Windows containers may rely on.
const (
	containerdRoot     = contract.DirContainerdData + `\root`
	containerdState    = contract.DirContainerdData + `\state`
	containerdPipe     = `\\.\pipe\containerd-containerd`
	pauseImage         = "mcr.microsoft.com/oss/kubernetes/pause:3.9"
	runtimeHandler     = contract.RuntimeClassHandler
	runtimeType        = "io.containerd.runhcs.v1"
	windowsSnapshotter = "windows"
	messageSize        = 16 << 20
	pullTimeout        = "30m"
	parallelDownloads  = 3
	logLineSize        = 16384
	streamAddress      = "127.0.0.1"
	streamIdleTimeout  = "4h"
)

// containerd runs the containers. It starts before there is a Node.
func containerd(in Input, bin binaries) (part, error) {
	config, err := containerdConfig(bin.file(contract.PathContainerd), cniDirs(in.Facts.NetworkType))
	if err != nil {
		return part{}, rendering(contract.PathContainerdConfig, err)
	}
	return part{
		services: []contract.Service{{
			Name: contract.ServiceContainerd,
			Command: command(contract.PathContainerd, "--config="+contract.PathContainerdConfig,
				"--log-file="+contract.LogFile(contract.ServiceContainerd), "--run-service",
				"--log-level="+level(in.Spec.Logging.Debug)),
			Bootstrap: true, Priority: 0, Disruptive: true,
			// As a service it writes to a file of its own or nowhere, and it has no limits for
			// that.
			Log: in.Logging.log(contract.LogFile(contract.ServiceContainerd), false),
		}},
		files: []contract.File{{Path: contract.PathContainerdConfig, Content: config,
			Services: []string{contract.ServiceContainerd}}},
	}, nil
}

// containerdFile is a configuration file of containerd, as far as we set it.
type containerdFile struct {
	Version int                 `toml:"version"`
	Root    string              `toml:"root"`
	State   string              `toml:"state"`
	GRPC    containerdGRPC      `toml:"grpc"`
	Plugins containerdPluginSet `toml:"plugins"`
}

type containerdGRPC struct {
	Address string `toml:"address"`
	Receive int    `toml:"max_recv_message_size"`
	Send    int    `toml:"max_send_message_size"`
}

type containerdPluginSet map[string]any

// table is a table of TOML.
type table = map[string]any

// containerdConfig writes the configuration in the form that this containerd reads: 1.x knows
// version 2 only; 2.x moved the settings of its CRI plugin to three others with version 3; 2.1
// replaced cni.bin_dir by cni.bin_dirs, and 2.4 reads nothing else. (2.4 has a version 4 too, and
// converts.)
func containerdConfig(binary payload.File, dirs cniPlaces) (string, error) {
	file := containerdFile{
		Version: 3, Root: containerdRoot, State: containerdState,
		GRPC: containerdGRPC{Address: containerdPipe, Receive: messageSize, Send: messageSize},
	}
	cni := table{"conf_dir": dirs.config, "max_conf_num": 1, "ip_pref": "ipv4"}
	// 1.7 was the last 1.x; what calls itself 1.36 is a stand-in with Kubernetes' version.
	before2 := older(binary, 1, 8)
	images := imagesSince2()
	if before2 || older(binary, 2, 1) && !older(binary, 2, 0) {
		cni["bin_dir"] = dirs.plugins
	} else {
		cni["bin_dirs"] = []string{dirs.plugins}
		// The transfer service, which pulls by default since 2.1, pulls each variant of an image that
		// the host can run: on Server 2025 those of 2022, too. A local pull takes the newest one.
		images["use_local_image_pull"] = true
	}
	if before2 {
		file.Version, file.Plugins = 2, pluginsBefore2(cni)
	} else {
		file.Plugins = pluginsSince2(cni, images)
	}
	file.Plugins["io.containerd.nri.v1.nri"] = table{"disable": true}

	var out bytes.Buffer
	encoder := toml.NewEncoder(&out)
	encoder.SetIndentTables(true)
	if err := encoder.Encode(file); err != nil {
		return "", err
	}
	return out.String(), nil
}

func pluginsBefore2(cni table) containerdPluginSet {
	return containerdPluginSet{"io.containerd.grpc.v1.cri": table{
		"sandbox_image":               pauseImage,
		"max_concurrent_downloads":    parallelDownloads,
		"image_pull_progress_timeout": pullTimeout,
		"max_container_log_line_size": logLineSize,
		"stream_server_address":       streamAddress,
		"stream_idle_timeout":         streamIdleTimeout,
		"cni":                         cni,
		"containerd": table{
			"default_runtime_name": runtimeHandler, "snapshotter": windowsSnapshotter, "discard_unpacked_layers": false,
			"runtimes": table{runtimeHandler: table{"runtime_type": runtimeType,
				"container_annotations": []string{"io.microsoft.container.*"}}},
		},
		"registry": table{"config_path": contract.DirRegistries},
	}}
}

func imagesSince2() table {
	return table{
		"snapshotter":                 windowsSnapshotter,
		"discard_unpacked_layers":     false,
		"max_concurrent_downloads":    parallelDownloads,
		"image_pull_progress_timeout": pullTimeout,
		"pinned_images":               table{"sandbox": pauseImage},
		"registry":                    table{"config_path": contract.DirRegistries},
	}
}

func pluginsSince2(cni, images table) containerdPluginSet {
	return containerdPluginSet{
		"io.containerd.cri.v1.images": images,
		"io.containerd.cri.v1.runtime": table{
			"max_container_log_line_size": logLineSize,
			"cni":                         cni,
			"containerd": table{
				"default_runtime_name": runtimeHandler,
				// The annotations and the option are containerd's own defaults, which naming the
				// runtime would otherwise switch off. ScrubLogs keeps containers' environment
				// variables out of the shim's log.
				"runtimes": table{runtimeHandler: table{
					"runtime_type": runtimeType, "container_annotations": []string{"io.microsoft.container.*"},
					"options": table{"ScrubLogs": true},
				}},
			},
		},
		"io.containerd.grpc.v1.cri": table{"stream_server_address": streamAddress,
			"stream_idle_timeout": streamIdleTimeout},
	}
}
