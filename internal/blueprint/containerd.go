package blueprint

import (
	"bytes"

	"github.com/pelletier/go-toml/v2"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Settings that users of Windows containers may rely on.
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

// containerd renders the service and configuration of containerd. The service starts before the Node exists.
func containerd(in Input, _ binaries) (part, error) {
	config, err := containerdConfig(cniDirs(in.Facts.NetworkType))
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
			// As a service, containerd can log only to a file, and doesn't limit the size of the file.
			Log: in.Logging.log(contract.LogFile(contract.ServiceContainerd), false),
		}},
		files: []contract.File{{Path: contract.PathContainerdConfig, Content: config,
			Services: []string{contract.ServiceContainerd}}},
	}, nil
}

// table is a table of TOML, or an object of JSON.
type table = map[string]any

// containerdConfig writes containerd's configuration in version 3, which containerd 2 reads. The plugins have the names
// and settings of containerd 2.1 and later.
func containerdConfig(plugins, config string) (string, error) {
	runtime := table{
		// The annotations and the option are containerd's defaults. containerd drops its defaults if its configuration
		// contains the runtime. ScrubLogs keeps containers' environment variables out of the shim's log.
		"runtime_type": runtimeType, "container_annotations": []string{"io.microsoft.container.*"},
		"options": table{"ScrubLogs": true},
	}
	file := table{
		"version": 3, "root": containerdRoot, "state": containerdState,
		"grpc": table{"address": containerdPipe, "max_recv_message_size": messageSize,
			"max_send_message_size": messageSize},
		"plugins": table{
			"io.containerd.cri.v1.images": table{
				"snapshotter":                 windowsSnapshotter,
				"discard_unpacked_layers":     false,
				"max_concurrent_downloads":    parallelDownloads,
				"image_pull_progress_timeout": pullTimeout,
				"pinned_images":               table{"sandbox": pauseImage},
				"registry":                    table{"config_path": contract.DirRegistries},
				// containerd's transfer service would pull each variant of an image that the host can run: on Server
				// 2025, also the variants for Server 2022. A local pull downloads only the newest variant.
				"use_local_image_pull": true,
			},
			"io.containerd.cri.v1.runtime": table{
				"max_container_log_line_size": logLineSize,
				"cni": table{"bin_dirs": []string{plugins}, "conf_dir": config, "max_conf_num": 1,
					"ip_pref": "ipv4"},
				"containerd": table{"default_runtime_name": runtimeHandler, "runtimes": table{runtimeHandler: runtime}},
			},
			"io.containerd.grpc.v1.cri": table{"stream_server_address": streamAddress,
				"stream_idle_timeout": streamIdleTimeout},
			"io.containerd.nri.v1.nri": table{"disable": true},
		},
	}
	var out bytes.Buffer
	encoder := toml.NewEncoder(&out)
	encoder.SetIndentTables(true)
	if err := encoder.Encode(file); err != nil {
		return "", err
	}
	return out.String(), nil
}
