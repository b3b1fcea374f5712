package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"golang.org/x/sys/windows"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/wine/hns"
)

const (
	pipe = `\\.\pipe\lab-hns`
	// hnsFile stores the state of HNS, in a directory of Windows.
	hnsFile = `C:\windows\system32\hns.json`
	// longest is the maximum length of a message from the DLLs in lab/wine/native.
	longest = 256 << 10
)

// serveHNS starts the simulated host network service, which runs in the background until the keeper ends. When it
// returns, programs can connect.
func serveHNS(host winos.Host) error {
	service, err := hns.New(hns.Options{Path: hnsFile, Management: func() (netip.Addr, error) {
		return host.Network.NodeIP(context.Background())
	}})
	if err != nil {
		return err
	}
	// Reuse each instance of the pipe, so that a caller always finds one. If all are busy, the caller waits.
	for range callers {
		end, err := newPipe()
		if err != nil {
			return err
		}
		go serveCallers(service, end)
	}
	return nil
}

// callers is the number of concurrent callers.
const callers = 4

// serveCallers serves the callers of one pipe instance sequentially.
func serveCallers(service *hns.Service, end windows.Handle) {
	caller := os.NewFile(uintptr(end), pipe)
	for {
		if err := windows.ConnectNamedPipe(end, nil); err != nil && !errors.Is(err, windows.ERROR_PIPE_CONNECTED) &&
			!errors.Is(err, windows.ERROR_NO_DATA) {
			fmt.Fprintln(os.Stderr, "the host network service ended:", err)
			return
		}
		answer(service, caller)
		_ = windows.DisconnectNamedPipe(end) // it only fails without a connection
	}
}

// newPipe creates one instance of the pipe. Its operations are blocking.
func newPipe() (windows.Handle, error) {
	name, err := windows.UTF16PtrFromString(pipe)
	if err != nil {
		return 0, err
	}
	h, err := windows.CreateNamedPipe(name, windows.PIPE_ACCESS_DUPLEX,
		windows.PIPE_TYPE_BYTE|windows.PIPE_READMODE_BYTE|windows.PIPE_WAIT,
		windows.PIPE_UNLIMITED_INSTANCES, longest, longest, 0, nil)
	if err != nil {
		return 0, fmt.Errorf("listening as the host network service: %w", err)
	}
	return h, nil
}

// answer answers the only message of a caller. Each message starts with its length.
func answer(service *hns.Service, caller *os.File) {
	var length uint32
	if err := binary.Read(caller, binary.LittleEndian, &length); err != nil || length > longest {
		return
	}
	message := make([]byte, length)
	if _, err := io.ReadFull(caller, message); err != nil {
		return
	}
	text := service.Answer(message)
	if _, err := caller.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)); err != nil {
		return
	}
	_, _ = caller.Read(make([]byte, 1)) // until the caller has read the answer and disconnects
}
