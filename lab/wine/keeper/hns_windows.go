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
	// hnsFile keeps what HNS holds, beside Windows' own files.
	hnsFile = `C:\windows\system32\hns.json`
	// longest message that our DLLs send.
	longest = 256 << 10
)

// serveHNS serves the stand-in of the host network service as long as the keeper lives. The first
// call is answered when it has returned.
func serveHNS(host winos.Host) error {
	service, err := hns.New(hns.Options{Path: hnsFile, Management: func() (netip.Addr, error) {
		return host.Network.NodeIP(context.Background())
	}})
	if err != nil {
		return err
	}
	// Each end of the pipe is used again and again, so that there is always one, and a caller at
	// worst waits.
	for range callers {
		end, err := newPipe()
		if err != nil {
			return err
		}
		go serveCallers(service, end)
	}
	return nil
}

// callers that are served at once.
const callers = 4

// serveCallers serves who comes to one end of the pipe, one after the other.
func serveCallers(service *hns.Service, end windows.Handle) {
	caller := os.NewFile(uintptr(end), pipe)
	for {
		if err := windows.ConnectNamedPipe(end, nil); err != nil && !errors.Is(err, windows.ERROR_PIPE_CONNECTED) &&
			!errors.Is(err, windows.ERROR_NO_DATA) {
			fmt.Fprintln(os.Stderr, "the host network service ended:", err)
			return
		}
		answer(service, caller)
		_ = windows.DisconnectNamedPipe(end) // fails only for one that is not connected
	}
}

// newPipe makes one end of the pipe for a caller to come. It blocks when it is used.
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

// answer answers the one message of a caller. Messages have their length in front.
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
	_, _ = caller.Read(make([]byte, 1)) // until the caller has the answer and goes
}
