package sshd_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

func TestLatencyDelaysEachRoundTripByTwice(t *testing.T) {
	t.Parallel()
	const latency = 20 * time.Millisecond
	h := startHost(t, func(_ *diskMachine, s *sshd.Settings) { s.Latency = latency })
	client := h.dial(t)
	begin := time.Now()
	for range 3 {
		if _, _, err := client.SendRequest("keepalive@openssh.com", true, nil); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took < 6*latency {
		t.Errorf("three round trips took %v, want at least %v", took, 6*latency)
	}
}

func TestLatencyDoesNotLimitThroughput(t *testing.T) {
	t.Parallel()
	// If each chunk of 32 KiB took a round trip of 400 ms, 4 MiB would take 51 s. With pipelining, an upload takes only
	// a few round trips.
	h := startHost(t, func(_ *diskMachine, s *sshd.Settings) { s.Latency = 200 * time.Millisecond })
	client := h.sftp(t, sftp.UseConcurrentWrites(true))
	content := pattern(4 << 20)
	begin := time.Now()
	put(t, client, "x", content)
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("the transfer of 4 MiB took %v", took)
	}
	if !bytes.Equal(get(t, client, "x"), content) {
		t.Error("the content read differs from the content written")
	}
}

func TestBandwidthIsShared(t *testing.T) {
	t.Parallel()
	h := startHost(t, func(_ *diskMachine, s *sshd.Settings) { s.Bandwidth = 1 << 20 })
	first, second := h.sftp(t), h.sftp(t)
	begin := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		put(t, first, "a", pattern(128<<10))
	}()
	put(t, second, "b", pattern(128<<10))
	<-done
	if took := time.Since(begin); took < 250*time.Millisecond {
		t.Errorf("the transfer of 256 KiB at 1 MiB/s took %v", took)
	}
}

func TestLatencyChangesUnderAnOpenConnection(t *testing.T) {
	t.Parallel()
	h := startHost(t, nil)
	client := h.dial(t)
	roundTrip := func() time.Duration {
		begin := time.Now()
		if _, _, err := client.SendRequest("keepalive@openssh.com", true, nil); err != nil {
			t.Fatal(err)
		}
		return time.Since(begin)
	}
	roundTrip()
	h.Change(func(s *sshd.Settings) { s.Latency = 30 * time.Millisecond })
	roundTrip() // the server has begun this read with the old setting
	if took := roundTrip(); took < 60*time.Millisecond {
		t.Errorf("a round trip took %v", took)
	}
	h.Change(func(s *sshd.Settings) { s.Latency = 0 })
	roundTrip()
}

func TestAConnectionIsCutAfterSoManyBytes(t *testing.T) {
	t.Parallel()
	for name, latency := range map[string]time.Duration{"on a perfect network": 0, "on a slow one": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHost(t, func(_ *diskMachine, s *sshd.Settings) { s.Latency = latency })
			client := h.sftp(t)
			h.ResetCounters()
			h.Change(func(s *sshd.Settings) { s.Faults.Drop = &sshd.Drop{After: 100_000, Times: 1} })
			f, err := client.Create("x")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(f, bytes.NewReader(pattern(1<<20))); err == nil {
				t.Error("the transfer succeeded although the connection was cut")
			}
			_ = f.Close()
			eventually(t, "the connection's end", func() bool { return h.Counters().OpenConnections == 0 })
			if c := h.Counters(); c.BytesIn+c.BytesOut < 100_000 || c.BytesIn+c.BytesOut > 200_000 {
				t.Errorf("the counters are %+v", c)
			}
			put(t, h.sftp(t), "x", pattern(1<<20)) // the fault happens only once, so this upload succeeds
		})
	}
}

func TestConnectionsAreCutAtRandom(t *testing.T) {
	t.Parallel()
	h := startHost(t, func(m *diskMachine, s *sshd.Settings) {
		m.exec = func(_ context.Context, c sshd.Command) int { _, _ = c.Stdout.Write(pattern(64 << 10)); return 0 }
		s.Faults.Drop = &sshd.Drop{After: 20_000, Random: true}
	})
	seen := map[string]bool{}
	for range 6 {
		before := h.Counters()
		client, _, err := h.dialAs(t, "Administrator")
		if err == nil {
			if session, err := client.NewSession(); err == nil {
				if session.Run("x") == nil {
					t.Error("the transfer of 64 KiB succeeded although the connection was cut")
				}
			}
			_ = client.Wait()
		}
		eventually(t, "the connection's end", func() bool { return h.Counters().OpenConnections == 0 })
		after := h.Counters()
		seen[fmt.Sprint(after.BytesIn-before.BytesIn+after.BytesOut-before.BytesOut)] = true
	}
	if len(seen) < 2 {
		t.Errorf("every connection was cut after %v bytes", seen)
	}
}

func TestAFrozenNetworkStopsEverythingAndGoesOn(t *testing.T) {
	t.Parallel()
	h := startHost(t, func(m *diskMachine, _ *sshd.Settings) { m.exec = echo })
	client := h.dial(t)
	h.Change(func(s *sshd.Settings) { s.Faults.Frozen = true })
	answered := make(chan error, 1)
	go func() {
		_, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a frozen connection answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	h.Change(func(s *sshd.Settings) { s.Faults.Frozen = false })
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	h.Change(func(s *sshd.Settings) { s.Faults.Frozen = true })
	h.Close() // Close must also end the goroutine of a frozen connection
	_ = client.Wait()
}

func TestWhatWasSentBeforeAnOrderlyCloseArrives(t *testing.T) {
	t.Parallel()
	h := startHost(t, func(m *diskMachine, s *sshd.Settings) {
		m.exec = func(_ context.Context, c sshd.Command) int { _, _ = c.Stdout.Write(pattern(1 << 20)); return 7 }
		s.Latency = 10 * time.Millisecond
	})
	output, code := run(t, h.dial(t), "x", "")
	if output != string(pattern(1<<20)) || code != 7 {
		t.Errorf("got %d bytes and exit code %d", len(output), code)
	}
}

func TestARefusedLoginIsToldOverASlowNetwork(t *testing.T) {
	t.Parallel()
	h := startHost(t, func(_ *diskMachine, s *sshd.Settings) {
		s.Latency, s.Faults.RefuseKeys = 5*time.Millisecond, true
	})
	conn, err := net.Dial("tcp", h.Address().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _, _, err = ssh.NewClientConn(conn, "x", &ssh.ClientConfig{
		User: "Administrator", Auth: []ssh.AuthMethod{ssh.PublicKeys(h.key)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err == nil {
		t.Fatal("the login succeeded, but it must be refused")
	}
	eventually(t, "the connection's end", func() bool { return h.Counters().OpenConnections == 0 })
}
