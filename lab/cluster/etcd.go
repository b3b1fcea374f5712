package cluster

import (
	"runtime"

	"github.com/windows-nodes/wmco/lab/port"
)

// etcdSocket is a socket in etcd's working directory, which the API server
// shares: no port to clash, and nobody else's user gets in, as the data directory
// is closed to others. etcd insists on a port in the URL and makes it part of the
// file's name.
const etcdSocket = "client:1"

// etcdURLs are where etcd listens to clients and to peers. A file's name on Windows can't have a colon, so etcd listens
// on two ports there, always the same ones: one control plane runs on a machine at a time, and any user of the machine
// may reach it.
func etcdURLs() (client, peer string) {
	if runtime.GOOS == "windows" {
		return "http://" + port.Loopback + ":23790", "http://" + port.Loopback + ":23800"
	}
	return "unix://" + etcdSocket, "unix://peer:1"
}

// etcdComponent is a single etcd that doesn't wait for the disk: after a power
// cut its data would be lost, and nobody would miss it.
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
