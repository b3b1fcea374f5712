package main

import (
	"context"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
)

// serve runs the program under the service manager, and returns the exit code of the program.
func serve(o order) int {
	if err := tie(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return failed
	}
	h := &handler{order: o}
	// The service manager ignores this name, because the service has its own process.
	if err := svc.Run("service-wrapper", h); err != nil {
		fmt.Fprintf(os.Stderr, "running as a service: %v\n", err)
		return failed
	}
	return h.code
}

// tie puts this process into a job. Every program that this process starts later belongs to the same job. When this
// process ends, even if it is killed, Windows closes the only handle of the job, and so ends all programs in the job.
func tie() error {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return fmt.Errorf("creating a job object: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	//nolint:gosec // the system's interface takes the address and the size of a structure
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err == nil {
		err = windows.AssignProcessToJobObject(job, windows.CurrentProcess())
	}
	if err != nil {
		return fmt.Errorf("setting up the job object: %w", err)
	}
	return nil
}

type handler struct {
	order order
	code  int
}

// Execute implements svc.Handler. If the program ends by itself, Execute reports a failure, even if the exit code is 0,
// so that the service manager restarts the service.
func (h *handler) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (specific bool,
	code uint32) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan int, 1)
	go func() {
		code, err := run(ctx, h.order)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		ended <- code
	}()
	current := svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	status <- current
	for {
		select {
		case request := <-requests:
			switch request.Cmd {
			case svc.Interrogate:
				status <- current
			case svc.Stop, svc.Shutdown:
				current = svc.Status{State: svc.StopPending, WaitHint: uint32(stopLimit.Milliseconds())}
				status <- current
				stop()
			}
		case h.code = <-ended:
			if ctx.Err() != nil {
				h.code = 0
				return false, 0
			}
			if h.code == 0 {
				h.code = failed
			}
			return true, uint32(h.code) //nolint:gosec // an exit code has 32 bits
		}
	}
}
