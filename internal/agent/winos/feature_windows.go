package winos

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Functions of the DISM API, which changes Windows features in our own process:
// https://learn.microsoft.com/en-us/windows-hardware/manufacture/desktop/dism/dism-api-functions.
var (
	dismapi            = windows.NewLazySystemDLL("dismapi.dll")
	dismInitialize     = dismapi.NewProc("DismInitialize")
	dismShutdown       = dismapi.NewProc("DismShutdown")
	dismOpenSession    = dismapi.NewProc("DismOpenSession")
	dismCloseSession   = dismapi.NewProc("DismCloseSession")
	dismGetFeatureInfo = dismapi.NewProc("DismGetFeatureInfo")
	dismEnableFeature  = dismapi.NewProc("DismEnableFeature")
	dismDelete         = dismapi.NewProc("DismDelete")
)

// dismTurn lets one caller at a time use the DISM API: a process initialises it as a whole, and sessions can't overlap.
var dismTurn sync.Mutex

func (system) Feature(ctx context.Context, name string) (FeatureState, error) {
	state, err := inSession(ctx, func(session uintptr) (FeatureState, error) {
		text, err := windows.UTF16PtrFromString(name)
		if err != nil {
			return "", err
		}
		// The head of DismFeatureInfo, which is the same however the structure is packed.
		var info *struct {
			Name  *uint16
			State uint32
		}
		hr, _, _ := dismGetFeatureInfo.Call(session, uintptr(unsafe.Pointer(text)), 0, 0, uintptr(unsafe.Pointer(&info)))
		if err := hresult(hr); err != nil {
			return "", err
		}
		defer func() { _, _, _ = dismDelete.Call(uintptr(unsafe.Pointer(info))) }()
		return featureState(info.State), nil
	})
	return state, fail(err, "looking at Windows feature %s", name)
}

// EnableFeature enables what the feature needs as well. When ctx ends, DISM is asked to cancel, and is left to it.
func (system) EnableFeature(ctx context.Context, name string) error {
	_, err := inSession(ctx, func(session uintptr) (FeatureState, error) {
		text, err := windows.UTF16PtrFromString(name)
		if err != nil {
			return "", err
		}
		cancel, release, err := eventOf(ctx)
		if err != nil {
			return "", err
		}
		defer release()
		const limitAccess, enableAll = 0, 1
		hr, _, _ := dismEnableFeature.Call(session, uintptr(unsafe.Pointer(text)), 0, 0, limitAccess, 0, 0, enableAll, uintptr(cancel), 0, 0)
		return "", hresult(hr) // 3010 (a reboot is needed) is a success, and Feature then answers Pending
	})
	return fail(err, "enabling Windows feature %s", name)
}

// eventOf makes an event that is set when ctx ends. release frees it.
func eventOf(ctx context.Context) (event windows.Handle, release func(), err error) {
	event, err = windows.CreateEvent(nil, 1, 0, nil)
	if err != nil {
		return 0, nil, fail(err, "making an event")
	}
	set := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(set)
		_ = windows.SetEvent(event) // fails only for a handle that isn't one
	})
	return event, func() {
		if !stop() {
			<-set
		}
		_ = windows.CloseHandle(event)
	}, nil
}

// inSession runs work in a DISM session on the running Windows.
func inSession(ctx context.Context, work func(session uintptr) (FeatureState, error)) (FeatureState, error) {
	if err := dismapi.Load(); err != nil {
		return "", fmt.Errorf("loading the DISM API: %w: %w", ErrUnsupported, err)
	}
	return interruptible(ctx, func() (state FeatureState, err error) {
		dismTurn.Lock()
		defer dismTurn.Unlock()
		runtime.LockOSThread() // it uses COM, which belongs to threads
		defer runtime.UnlockOSThread()
		if err := ctx.Err(); err != nil {
			return "", err
		}
		const logErrors = 0
		hr, _, _ := dismInitialize.Call(logErrors, 0, 0)
		if err := hresult(hr); err != nil {
			return "", fail(err, "starting DISM")
		}
		defer func() { _, _, _ = dismShutdown.Call() }()
		online, err := windows.UTF16PtrFromString("DISM_{53BFAE52-B167-4E2F-A258-0A37B57FF845}") // DISM_ONLINE_IMAGE
		if err != nil {
			return "", err
		}
		var session uint32
		hr, _, _ = dismOpenSession.Call(uintptr(unsafe.Pointer(online)), 0, 0, uintptr(unsafe.Pointer(&session)))
		if err := hresult(hr); err != nil {
			return "", fail(err, "opening a DISM session")
		}
		defer func() { err = errors.Join(err, closeSession(session)) }()
		return work(uintptr(session))
	})
}

func closeSession(session uint32) error {
	hr, _, _ := dismCloseSession.Call(uintptr(session))
	return fail(hresult(hr), "closing a DISM session")
}

// hresult turns an HRESULT into an error. Positive ones are kinds of success.
func hresult(hr uintptr) error {
	if int32(hr) >= 0 {
		return nil
	}
	return windows.Errno(uint32(hr))
}
