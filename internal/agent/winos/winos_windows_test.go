package winos_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
)

// serveArg as the first argument makes the test binary a Windows service; what kind follows it.
const serveArg = "serve"

// lingering is how long a service of kind "linger" lives on after the service manager was told that it stopped.
const lingering = 700 * time.Millisecond

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serveArg {
		if err := serve(strings.Join(os.Args[2:], " ")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serviceCommand is the command line of a service of one kind: the test binary itself.
func serviceCommand(t *testing.T, kind string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`"%s" %s %s`, exe, serveArg, kind)
}

func serve(kind string) error {
	if kind == "crash" {
		return fmt.Errorf("asked to end before reaching the service manager")
	}
	if err := svc.Run("", service{kind: kind}); err != nil {
		return err
	}
	if kind == "linger" {
		event, err := windows.CreateEvent(nil, 1, 0, nil)
		if err != nil {
			return err
		}
		_, err = windows.WaitForSingleObject(event, uint32(lingering.Milliseconds()))
		return err
	}
	return nil
}

type service struct{ kind string }

func (s service) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (bool, uint32) {
	const accepted = svc.AcceptStop | svc.AcceptShutdown
	status <- svc.Status{State: svc.StartPending, WaitHint: 2000}
	if s.kind == "fail" {
		return false, 7
	}
	if s.kind == "slow" {
		for checkpoint := range uint32(5) {
			status <- svc.Status{State: svc.StartPending, CheckPoint: checkpoint + 1, WaitHint: 2000}
			<-time.After(50 * time.Millisecond)
		}
	}
	status <- svc.Status{State: svc.Running, Accepts: accepted}
	for request := range requests {
		switch request.Cmd {
		case svc.Interrogate:
			status <- request.CurrentStatus
		case svc.Stop, svc.Shutdown:
			status <- svc.Status{State: svc.StopPending, WaitHint: 2000}
			return false, 0
		}
	}
	return false, 0
}

// onWine says whether the tests run on Wine, which lacks parts of Windows.
func onWine() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}
