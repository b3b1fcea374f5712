package remote_test

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/leak"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/wine/remote"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// serve serves a simulated machine on the other end of a stream.
func serve(t *testing.T) (*remote.Host, *sim.Machine) {
	t.Helper()
	machine, err := sim.New(sim.Options{Hostname: "WIN-R", Address: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- remote.Serve(machine.Host(), there) }()
	host := remote.Dial(here)
	t.Cleanup(func() {
		host.Close()
		if err := errors.Join(<-served, machine.Close()); err != nil {
			t.Error(err)
		}
	})
	return host, machine
}

func TestErrorsKeepTheirKindAndWords(t *testing.T) {
	t.Parallel()
	host, machine := serve(t)
	_, err := host.Services.Get(t.Context(), "nobody")
	_, want := machine.Host().Services.Get(t.Context(), "nobody")
	if !errors.Is(err, winos.ErrNotFound) || err.Error() != want.Error() {
		t.Errorf("reading a missing service: %v, want %v", err, want)
	}
	if _, err := host.Files.Stat(`C:\nothing`); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, winos.ErrDenied) {
		t.Errorf("reading a missing file: %v", err)
	}
	if err := host.Files.Remove(`C:\a:b`); !errors.Is(err, winos.ErrInvalidName) {
		t.Errorf("creating a file with an invalid name: %v", err)
	}
}

func TestWhatIsWrittenIsThere(t *testing.T) {
	t.Parallel()
	host, machine := serve(t)
	if err := host.Files.MkdirAll(`C:\a\b`, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	if err := winos.WriteFile(host.Files, `C:\a\b\c.txt`, strings.NewReader("content"),
		winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	if content, err := winos.ReadFile(machine.Host().Files, `C:\a\b\c.txt`); err != nil ||
		string(content) != "content" {
		t.Errorf("on the machine, the file contains %q, %v", content, err)
	}
	if content, err := winos.ReadFile(host.Files, `C:\a\b\c.txt`); err != nil || string(content) != "content" {
		t.Errorf("read through the stream, the file contains %q, %v", content, err)
	}
	if infos, err := host.Files.List(`C:\a\b`); err != nil || len(infos) != 1 ||
		infos[0].Size != int64(len("content")) {
		t.Errorf("the listing is %+v, %v", infos, err)
	}
	if info, err := host.Files.Stat(`C:\a\b`); err != nil || !info.Dir || info.Access != winos.AccessAdministrators {
		t.Errorf("the directory is %+v, %v", info, err)
	}
	if err := host.Files.Restrict(`C:\a\b\c.txt`); err != nil {
		t.Error(err)
	}
	if info, err := host.Files.Stat(`C:\a\b\c.txt`); err != nil || info.Access != winos.AccessAdministrators {
		t.Errorf("the restricted file is %+v, %v", info, err)
	}
	if err := errors.Join(host.Files.Rename(`C:\a\b\c.txt`, `C:\a\d.txt`), host.Files.Remove(`C:\a\d.txt`),
		host.Files.RemoveAll(`C:\a\b`)); err != nil {
		t.Error(err)
	}
	if infos, err := host.Files.List(`C:\a`); err != nil || len(infos) != 0 {
		t.Errorf("after the removal, the listing is %+v, %v", infos, err)
	}
}

func TestServicesVariablesAndCertificatesAreTheMachines(t *testing.T) {
	t.Parallel()
	host, machine := serve(t)
	ctx := t.Context()
	config := winos.ServiceConfig{Name: "svc", Command: `C:\x.exe`, Recovery: []time.Duration{time.Second},
		RecoveryReset: time.Minute}
	if err := host.Services.Apply(ctx, config); err != nil {
		t.Fatal(err)
	}
	if names, err := host.Services.List(ctx); err != nil || !slices.Contains(names, "svc") {
		t.Errorf("the services are %v, %v", names, err)
	}
	if s, err := host.Services.Get(ctx, "svc"); err != nil || s.Command != config.Command ||
		s.State != winos.ServiceStopped || s.Recovery[0] != time.Second {
		t.Errorf("the service is %+v, %v", s, err)
	}
	if err := host.Services.Start(ctx, "svc"); !errors.Is(err, winos.ErrStartFailed) {
		t.Errorf("starting a service without an exe: %v", err)
	}
	if err := errors.Join(host.Services.Stop(ctx, "svc"), host.Services.Delete(ctx, "svc"),
		host.Environment.Set(ctx, "NAME", "value")); err != nil {
		t.Error(err)
	}
	if all, err := machine.Host().Environment.All(ctx); err != nil || all["NAME"] != "value" {
		t.Errorf("on the machine, the variables are %v, %v", all, err)
	}
	if all, err := host.Environment.All(ctx); err != nil || all["NAME"] != "value" {
		t.Errorf("read through the stream, the variables are %v, %v", all, err)
	}
	der := []byte("\x30\x03\x02\x01\x01") // an ASN.1 sequence is enough for the store
	if err := errors.Join(host.Environment.Unset(ctx, "NAME"), host.Trust.Add(ctx, der)); err != nil {
		t.Error(err)
	}
	if all, err := host.Trust.List(ctx); err != nil ||
		!slices.ContainsFunc(all, func(c []byte) bool { return string(c) == string(der) }) {
		t.Errorf("there are %d certificates, %v", len(all), err)
	}
	if err := host.Trust.Remove(ctx, der); err != nil {
		t.Error(err)
	}
	if facts, err := host.Facts(ctx); err != nil || facts.Hostname != "WIN-R" {
		t.Errorf("the facts are %+v, %v", facts, err)
	}
}

func TestACallEndsWhenTheStreamDoes(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	host := remote.Dial(here)
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Facts(t.Context()); err == nil {
		t.Error("reading the facts succeeded although the machine is closed")
	}
	host.Close()
}
