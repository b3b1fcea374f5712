//go:build linux

package wine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sweep kills all processes whose environment contains the prefix. Wine's processes leave their parents and groups, but
// inherit the environment. sweep repeats until it finds no process, for at most a few seconds.
func sweep(prefix string) {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		alive := processes(prefix)
		if len(alive) == 0 {
			break
		}
		for _, pid := range alive {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended already
		}
		pause(10 * time.Millisecond)
	}
	removeSocket(prefix)
}

// processes lists the processes of a prefix. Zombies are not included, because they have no environment.
func processes(prefix string) []int {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil
	}
	var found []int
	want := []byte("WINEPREFIX=" + prefix)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended or belongs to another user
		}
		for variable := range bytes.SplitSeq(content, []byte{0}) {
			if bytes.Equal(variable, want) {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

// socketName is a file in a prefix. Debian's wineserver writes the name of its folder below /tmp into it.
const socketName = "wineserver"

// removeSocket removes the folder of a wineserver in the system's temporary folder. Some wineservers choose its name,
// and others derive it from the device and inode of the prefix.
func removeSocket(prefix string) {
	if name, err := os.ReadFile(filepath.Join(prefix, socketName)); err == nil &&
		strings.HasPrefix(string(name), "wine-") && !strings.ContainsRune(string(name), '/') {
		_ = os.RemoveAll(filepath.Join("/tmp", string(name)))
	}
	info, err := os.Stat(prefix)
	if err != nil {
		return
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		_ = os.RemoveAll(fmt.Sprintf("/tmp/.wine-%d/server-%x-%x", os.Getuid(), stat.Dev, stat.Ino))
	}
}

func pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
