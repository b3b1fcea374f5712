package cluster

// etcdClientURL names a socket in etcd's working directory, which the API server
// shares: no port to clash, and nobody else's user gets in, as the data directory
// is closed to others. etcd insists on a port in the URL and makes it part of the
// file's name.
const (
	etcdClientURL = "unix://client:1"
	etcdPeerURL   = "unix://peer:1"
	etcdSocket    = "client:1"
)

// etcdComponent is a single etcd that doesn't wait for the disk: after a power
// cut its data would be lost, and nobody would miss it.
func etcdComponent(binaries Binaries, w *workspace) component {
	return component{
		name: etcdName,
		path: binaries.Etcd,
		dir:  w.path("etcd"),
		log:  w.path(etcdName + ".log"),
		args: []string{
			"--name=lab",
			"--data-dir=" + w.path("etcd", "data"),
			"--listen-client-urls=" + etcdClientURL,
			"--advertise-client-urls=" + etcdClientURL,
			"--listen-peer-urls=" + etcdPeerURL,
			"--initial-advertise-peer-urls=" + etcdPeerURL,
			"--initial-cluster=lab=" + etcdPeerURL,
			"--unsafe-no-fsync",
			"--log-level=warn",
		},
	}
}
