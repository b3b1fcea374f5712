package verbs_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payloadserver"
)

// shelf maps a digest to the content of a blob of the payload.
type shelf map[string]string

// Blob implements payloadserver.Blobs.
func (s shelf) Blob(digest string) (payload.Blob, bool) {
	content, ok := s[digest]
	return payload.Blob{Blob: contract.Blob{Digest: digest, Size: int64(len(content))},
		Open: func() (io.ReadCloser, error) {
			return blobFile{strings.NewReader(content)}, nil
		}}, ok
}

// blobFile is a blob that can be read at any offset, like a file.
type blobFile struct{ *strings.Reader }

// Close implements io.Closer.
func (blobFile) Close() error { return nil }

// payloadServer serves payload as the operator does, and publishes its address.
func (w *world) payloadServer(t *testing.T, blobs shelf) {
	t.Helper()
	d, err := payloadserver.New(payloadserver.Options{
		Blobs: blobs, Addresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		Clients: func() (x509.VerifyOptions, bool) {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(w.CAPEM)
			return x509.VerifyOptions{Roots: pool}, true
		},
		Known: func(_ context.Context, node string) (bool, error) { return node == "win-a", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = d.Serve(ctx, listener) })
	t.Cleanup(func() { cancel(); serving.Wait() })
	_, err = w.admin.CoreV1().ConfigMaps(contract.OperatorNamespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: contract.PayloadSourceConfigMap},
		Data: map[string]string{contract.PayloadSourceURLs: "https://127.0.0.1:1\nhttps://" +
			listener.Addr().String(), contract.PayloadSourceCA: string(d.Certificate())},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// replaced returns a copy of a manifest that has different programs at some paths.
func replaced(m contract.Manifest, programs map[string]string) contract.Manifest {
	files := make([]contract.File, 0, len(m.Files))
	for _, f := range m.Files {
		if content, ok := programs[f.Path]; ok {
			f.Digest, f.Size = digestOf(content), int64(len(content))
		}
		files = append(files, f)
	}
	m.Files = files
	return m
}

// Everything except Windows is real in this test: the daemon, the payload server, and the API server with its
// policies.
func TestA29_ANodeIsStagedSwitchedAndComesBackWithAnotherDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.approve(t)
	const proxy, daemon = "MZ kube-proxy 2", "MZ wicd 2"
	w.payloadServer(t, shelf{digestOf(proxy): proxy, digestOf(daemon): daemon})
	w.join(t)
	w.holds(t, w.desired.Revision)
	before := w.rig.Snapshot()
	next := replaced(w.desired.Manifest, map[string]string{contract.PathKubeProxy: proxy, contract.PathDaemon: daemon})
	version := versionOf(next)
	w.publish(t, version, next, w.desired.Confidential)
	w.annotate(t, fmt.Sprintf("%q:%q", contract.StageAnnotation, version))
	eventually(t, "staging", func() bool { return w.node(t).Annotations[contract.StagedAnnotation] == version })
	if got := w.node(t).Annotations[contract.StagedBytesAnnotation]; got != strconv.Itoa(len(proxy)+len(daemon)) {
		t.Errorf("%s bytes were transferred", got)
	}
	for _, path := range []string{contract.PathKubeProxy, contract.PathDaemon} {
		key := "file " + strings.ToUpper(path)
		if w.rig.Snapshot()[key] != before[key] {
			t.Errorf("%s was changed before the switch was requested", path)
		}
	}
	pids := map[string]uint32{}
	for _, s := range next.Services {
		pids[s.Name] = service(t, w.rig, s.Name).PID
	}
	was := service(t, w.rig, contract.ServiceDaemon).PID
	w.annotate(t, fmt.Sprintf("%q:%q", contract.DesiredRevisionAnnotation, version))
	w.holds(t, version)
	if content, err := winos.ReadFile(w.Host().Files, contract.PathDaemon); err != nil || string(content) != daemon {
		t.Errorf("the daemon's program is %q, %v", content, err)
	}
	if now := service(t, w.rig, contract.ServiceDaemon); now.PID == was || now.State != winos.ServiceRunning {
		t.Errorf("the daemon is %+v", now)
	}
	for name, pid := range pids {
		if now := service(t, w.rig, name).PID; (now != pid) != (name == contract.ServiceKubeProxy) {
			t.Errorf("the process of %s was %d and is %d", name, pid, now)
		}
	}
	t.Run("A30: the host reboots once its boot is approved", func(t *testing.T) {
		boot := w.node(t).Annotations[contract.BootIDAnnotation]
		w.annotate(t, fmt.Sprintf("%q:%q", contract.RebootApprovedAnnotation, boot))
		eventually(t, "another boot", func() bool {
			now := w.node(t).Annotations[contract.BootIDAnnotation]
			return now != "" && now != boot
		})
		w.holds(t, version)
	})
}
