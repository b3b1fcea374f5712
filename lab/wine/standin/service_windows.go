package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Microsoft/hcsshim"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/wine/fault"
)

// serve runs a stand-in as a Windows service and returns its exit code.
func serve(name string, process *sim.Process, run sim.Program) int {
	release, err := hold(name, process.Host)
	if err != nil {
		fmt.Fprintf(os.Stderr, "panic: %v\n", err)
		return 2
	}
	h := &handler{process: process, run: run}
	if err = svc.Run(name, h); err != nil {
		fmt.Fprintf(os.Stderr, "running as a service: %v\n", err)
		return 1
	}
	if there, _ := winos.Exists(process.Host.Files, fault.Lingers(name)); there {
		<-time.After(time.Hour) // the service has stopped, but main continues
	}
	_ = release()
	return h.code
}

// hold locks the file fault.Pipe of a program. If another process has locked it, hold writes the file fault.Twice.
func hold(name string, host winos.Host) (release func() error, err error) {
	release, _, err = host.Programs.Lock(context.Background(), fault.Pipe(name))
	if err == nil {
		return release, nil
	}
	return nil, errors.Join(err, winos.WriteFile(host.Files, fault.Twice(name), strings.NewReader(err.Error()),
		winos.AccessInherit))
}

// protect prevents all users, including administrators, from killing this process. They can still query it.
func protect() error {
	const look = windows.SYNCHRONIZE | windows.PROCESS_QUERY_LIMITED_INFORMATION
	descriptor, err := windows.SecurityDescriptorFromString(fmt.Sprintf("O:BAG:BAD:P(A;;%#x;;;WD)", look))
	if err != nil {
		return err
	}
	return windows.SetKernelObjectSecurity(windows.CurrentProcess(), windows.DACL_SECURITY_INFORMATION, descriptor)
}

type handler struct {
	process *sim.Process
	run     sim.Program
	code    int
}

// Execute implements svc.Handler.
func (h *handler) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (specific bool,
	code uint32) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	status <- svc.Status{State: svc.StartPending}
	up, ended := make(chan struct{}, 1), make(chan int, 1)
	h.process.Running = func() {
		select {
		case up <- struct{}{}:
		default:
		}
	}
	go func() { ended <- h.run(ctx, h.process) }()
	current := svc.Status{State: svc.StartPending}
	for {
		select {
		case <-up:
			current = svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
			status <- current
		case request := <-requests:
			switch request.Cmd {
			case svc.Interrogate:
				status <- current
			case svc.Stop, svc.Shutdown:
				current = svc.Status{State: svc.StopPending}
				status <- current
				stop()
			}
		case h.code = <-ended:
			return h.code != 0, uint32(h.code)
		}
	}
}

// makeNetwork creates an HNS network. Like the hybrid overlay, it first removes a network with the same name.
func makeNetwork(wanted winos.HNSNetwork) (winos.HNSNetwork, error) {
	if old, err := hcsshim.GetHNSNetworkByName(wanted.Name); err == nil {
		if _, err = old.Delete(); err != nil {
			return winos.HNSNetwork{}, fmt.Errorf("removing the HNS network: %w", err)
		}
	}
	subnet := hcsshim.Subnet{AddressPrefix: wanted.Subnet.String(),
		GatewayAddress: wanted.Subnet.Masked().Addr().Next().String()}
	if wanted.VNI != 0 {
		policy, err := json.Marshal(hcsshim.VsidPolicy{Type: hcsshim.VSID, VSID: uint(wanted.VNI)})
		if err != nil {
			return winos.HNSNetwork{}, fmt.Errorf("writing the HNS network: %w", err)
		}
		subnet.Policies = append(subnet.Policies, policy)
	}
	made, err := (&hcsshim.HNSNetwork{Name: wanted.Name, Type: "Overlay", Subnets: []hcsshim.Subnet{subnet}}).Create()
	if err != nil {
		return winos.HNSNetwork{}, fmt.Errorf("making the HNS network: %w", err)
	}
	wanted.ID = made.Id
	return wanted, nil
}
