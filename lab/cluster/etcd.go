package cluster

import (
	"runtime"

	"github.com/windows-nodes/wmco/lab/port"
)

// etcdSocket is a socket in the working directory of etcd, which the API server shares. It avoids port conflicts, and
// other users have no access because the data directory is private. etcd requires a port in the URL and makes it part
// of the file name.
const etcdSocket = "client:1"

// etcdURLs returns the URLs of etcd for clients and peers. On Windows, a file name can't contain a colon, so etcd
// listens on two fixed ports there. Therefore, only one control plane can run on a Windows machine, and every local
// user can connect to it.
func etcdURLs() (client, peer string) {
	if runtime.GOOS == "windows" {
		return "http://" + port.Loopback + ":23790", "http://" + port.Loopback + ":23800"
	}
	return "unix://" + etcdSocket, "unix://peer:1"
}

// etcdComponent is a single etcd that doesn't sync to disk. A power cut would lose its data, which is acceptable in a
// lab.
func etcdComponent(binaries Binaries, w *workspace) component {
	client, peer := etcdURLs()
	return component{
		name: etcdName,
		path: binaries.Etcd,
		dir:  w.path("etcd"),
		log:  w.path(etcdName + ".log"),
		args: []string{
			"--name=lab",
			"--data-dir=" + w.path("etcd", "data"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=lab=" + peer,
			"--unsafe-no-fsync",
			"--log-level=warn",
		},
	}
}
