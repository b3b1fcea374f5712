//go:build linux

package wine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cell is the environment of the processes of a running host.
//
// Its first process ends when its standard input ends, and therefore also when the lab is killed. The other processes
// then end as well: with namespaces, the kernel kills them. Without namespaces, the first process ends Wine.
type cell struct {
	template *Template
	prefix   string
	first    *exec.Cmd
	hold     io.Closer
	// said is the standard error of the first process. ended is closed when the first process has ended.
	said  *tail
	ended chan struct{}
	// network is the network namespace. Without namespaces, it is nil.
	network *os.File
}

// namespaces are the namespaces of a cell: name, process table, mounts, network.
const namespaces = syscall.CLONE_NEWUTS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET

// isolatedScript is the script of the first process if there are namespaces. Its arguments are the name of the host,
// its address with prefix length, and its gateway. The gateway doesn't exist, so packets to other networks are lost.
// Names are resolved by files in the working directory, because Wine resolves the name of the host at each boot and
// would otherwise wait for a name server. The command wait also reaps processes whose parents have ended.
const isolatedScript = `set -e
mount --make-rprivate /
mount -t proc proc /proc
echo "$1" >/proc/sys/kernel/hostname
for file in hosts resolv.conf; do
  if [ -e /etc/$file ]; then mount --bind $file /etc/$file; fi
done
ip link set lo up
ip link add eth0 type veth peer name eth1
ip address add "$2" dev eth0
ip link set eth0 up
ip link set eth1 up
ip route add default via "$3"
exec 3<&0
echo ready
cat <&3 >/dev/null &
wait
`

// sharedScript is the script of the first process if there are no namespaces. Its argument is wineserver.
const sharedScript = `echo ready
cat >/dev/null
exec "$1" -k
`

// trialTimeout limits the trial of namespaces, which takes a few milliseconds.
const trialTimeout = 20 * time.Second

// CanIsolate reports whether the kernel allows namespaces and the programs for setting them up are installed. It tries
// every step of the first process, because containers can allow some steps and forbid others.
func CanIsolate(ctx context.Context) bool {
	for _, program := range []string{"ip", "mount", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return false
		}
	}
	dir, err := os.MkdirTemp("", "wmco-wine-")
	if err != nil {
		return false
	}
	defer func() { _ = os.RemoveAll(dir) }()
	address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 33, 0, 1}), addressBits)
	if writeNames(dir, "WIN-TRIAL", address.Addr()) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", isolatedScript, "cell", "WIN-TRIAL", address.String(),
		gatewayOf(address).String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	return cmd.Run() == nil // its standard input is empty, so it exits at once
}

// startup is the maximum start time of a cell. On two idle cores, a start takes a fraction of a second.
const startup = 30 * time.Second

// openCell starts the first process.
func (t *Template) openCell(ctx context.Context, prefix, hostname string, address netip.Prefix) (*cell, error) {
	c := &cell{template: t, prefix: prefix, said: &tail{}, ended: make(chan struct{})}
	c.first = exec.Command("sh", "-c", sharedScript, "cell", t.server) //nolint:noctx // it ends with its standard input
	if t.isolated {
		if err := writeNames(prefix, hostname, address.Addr()); err != nil {
			return nil, err
		}
		gateway := gatewayOf(address)
		arguments := []string{"-c", isolatedScript, "cell", hostname, address.String(), gateway.String()}
		c.first = exec.Command("sh", arguments...) //nolint:noctx // as above
		c.first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	}
	group(c.first)
	c.first.Cancel = nil
	c.first.Env, c.first.Dir, c.first.Stderr = environment(prefix), prefix, c.said
	hold, err := c.first.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	output, err := c.first.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	c.hold = hold
	if err = c.first.Start(); err != nil {
		return nil, fmt.Errorf("starting the first process of a host: %w", err)
	}
	ready := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(output).ReadString('\n')
		ready <- line
		_ = c.first.Wait()
		close(c.ended)
	}()
	select {
	case line := <-ready:
		if line == "ready\n" {
			return c, c.openNetwork()
		}
		err = errors.New("the first process ended")
	case <-time.After(startup):
		err = fmt.Errorf("the first process is not ready after %s", startup)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.kill()
	return nil, fmt.Errorf("starting the first process of a host: %w: %s", err, c.said)
}

// writeNames writes the files for name resolution on the host: its own name, and a name server that refuses connections
// immediately.
func writeNames(dir, hostname string, address netip.Addr) error {
	for file, content := range map[string]string{
		"hosts":       fmt.Sprintf("127.0.0.1 localhost\n::1 localhost\n%s %s\n", address, hostname),
		"resolv.conf": "nameserver 127.0.0.1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
			return fmt.Errorf("writing how the host resolves names: %w", err)
		}
	}
	return nil
}

func (c *cell) openNetwork() (err error) {
	if !c.template.isolated {
		return nil
	}
	if c.network, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", c.first.Process.Pid)); err != nil {
		c.kill()
		return fmt.Errorf("opening the host's network: %w", err)
	}
	return nil
}

// command prepares a program of this machine, usually Wine, to run in the cell. dir is its working directory. When ctx
// ends, the program and its children are killed.
func (c *cell) command(ctx context.Context, dir string, program ...string) *exec.Cmd {
	words := program
	if c.template.isolated {
		// The change of directory must follow the change of namespaces.
		words = append([]string{
			"nsenter", "--target", strconv.Itoa(c.first.Process.Pid), "--uts", "--pid", "--mount", "--net",
			"sh", "-c", `cd "$1" && shift && exec "$@"`, "sh", dir,
		}, program...)
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env, cmd.WaitDelay = environment(c.prefix), 2*time.Second
	if !c.template.isolated {
		cmd.Dir = dir
	}
	group(cmd)
	return cmd
}

// saveTimeout is how long Wine has to write its registry when a host is turned off.
const saveTimeout = 10 * time.Second

// save lets Wine write its registry and end. Otherwise, the changes of the last half minute are lost.
func (c *cell) save() {
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	// The method close later kills all processes that do not end by themselves.
	_ = c.command(ctx, c.prefix, c.template.server, "-k", "-w").Run()
}

// close ends all processes.
func (c *cell) close() {
	c.kill()
	sweep(c.prefix)
}

// kill ends the first process. If there are namespaces, this ends all other processes as well.
func (c *cell) kill() {
	_ = c.hold.Close()
	select {
	case <-c.ended:
	case <-time.After(time.Second):
		_ = c.first.Process.Kill() // it may have ended already
		<-c.ended
	}
	if c.network != nil {
		_ = c.network.Close()
	}
}

// inNetwork runs a function on a thread in the network of the host. Sockets that the function creates stay in this
// network. Goroutines that the function starts run in the network of this machine.
func (c *cell) inNetwork(work func() error) error {
	if c.network == nil {
		return work()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without UnlockOSThread, the thread ends with this goroutine
		own, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- fmt.Errorf("opening the own network: %w", err)
			return
		}
		defer func() { _ = own.Close() }()
		if err = unix.Setns(int(c.network.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("entering the host's network: %w", err)
			return
		}
		err = work()
		if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// listen listens in the network of the host.
func (c *cell) listen(address netip.AddrPort) (l net.Listener, err error) {
	err = c.inNetwork(func() error {
		l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", address.String())
		return err
	})
	return l, err
}

// dial connects to an address in the network of the host.
func (c *cell) dial(ctx context.Context, address netip.AddrPort) (conn net.Conn, err error) {
	err = c.inNetwork(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", address.String())
		return err
	})
	return conn, err
}
