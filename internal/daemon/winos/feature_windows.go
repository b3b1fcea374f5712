package winos

import (
	"context"
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/windows"
)

func (s system) Feature(ctx context.Context, name string) (FeatureState, error) {
	state, err := s.inSession(ctx, func(d dism, session uintptr) (FeatureState, error) {
		text, err := windows.UTF16PtrFromString(name)
		if err != nil {
			return "", err
		}
		// These are the first fields of DismFeatureInfo. Their position doesn't depend on the structure's packing.
		var info *struct {
			Name  *uint16
			State uint32
		}
		hr, _, _ := d.getFeatureInfo.Call(session, uintptr(unsafe.Pointer(text)), 0, 0, uintptr(unsafe.Pointer(&info)))
		if err := hresult(hr); err != nil {
			return "", err
		}
		defer func() { _, _, _ = d.free.Call(uintptr(unsafe.Pointer(info))) }()
		return featureState(info.State), nil
	})
	return state, fail(err, "looking at Windows feature %s", name)
}

// EnableFeature implements System. It also enables the feature's dependencies. If ctx ends, EnableFeature asks DISM to
// cancel, and returns without waiting for DISM.
func (s system) EnableFeature(ctx context.Context, name string) error {
	_, err := s.inSession(ctx, func(d dism, session uintptr) (FeatureState, error) {
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
		hr, _, _ := d.enableFeature.Call(session, uintptr(unsafe.Pointer(text)), 0, 0, limitAccess, 0, 0, enableAll,
			uintptr(cancel), 0, 0)
		return "", hresult(hr)
	})
	return fail(err, "enabling Windows feature %s", name)
}

// eventOf returns an event that is set when ctx ends. The caller must call release to free the event.
func eventOf(ctx context.Context) (event windows.Handle, release func(), err error) {
	event, err = windows.CreateEvent(nil, 1, 0, nil)
	if err != nil {
		return 0, nil, fail(err, "making an event")
	}
	set := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(set)
		_ = windows.SetEvent(event) // SetEvent fails only for an invalid handle
	})
	return event, func() {
		if !stop() {
			<-set
		}
		_ = windows.CloseHandle(event)
	}, nil
}

// dism contains functions of the DISM API:
// https://learn.microsoft.com/en-us/windows-hardware/manufacture/desktop/dism/dism-api-functions.
type dism struct {
	initialize, shutdown, openSession, closeSession, getFeatureInfo, enableFeature, free *windows.LazyProc
}

func loadDISM() (dism, error) {
	var d dism
	for name, target := range map[string]**windows.LazyProc{
		"DismInitialize": &d.initialize, "DismShutdown": &d.shutdown, "DismOpenSession": &d.openSession,
		"DismCloseSession":   &d.closeSession,
		"DismGetFeatureInfo": &d.getFeatureInfo, "DismEnableFeature": &d.enableFeature, "DismDelete": &d.free,
	} {
		found, err := function("dismapi.dll", name)
		if err != nil {
			return dism{}, err
		}
		*target = found
	}
	return d, nil
}

// inSession calls `work` in a DISM session for the running Windows. DISM is initialised per process, so only one caller
// at a time has a session.
func (s system) inSession(ctx context.Context, work func(d dism, session uintptr) (FeatureState, error)) (FeatureState,
	error) {
	d, err := loadDISM()
	if err != nil {
		return "", err
	}
	return interruptible(ctx, func() (state FeatureState, err error) {
		s.dismTurn.Lock()
		defer s.dismTurn.Unlock()
		runtime.LockOSThread() // DISM uses COM, which is bound to threads
		defer runtime.UnlockOSThread()
		if err := ctx.Err(); err != nil {
			return "", err
		}
		const logErrors = 0
		hr, _, _ := d.initialize.Call(logErrors, 0, 0)
		if err := hresult(hr); err != nil {
			return "", fail(err, "starting DISM")
		}
		defer func() { _, _, _ = d.shutdown.Call() }()
		online, err := windows.UTF16PtrFromString("DISM_{53BFAE52-B167-4E2F-A258-0A37B57FF845}") // DISM_ONLINE_IMAGE
		if err != nil {
			return "", err
		}
		var session uint32
		hr, _, _ = d.openSession.Call(uintptr(unsafe.Pointer(online)), 0, 0, uintptr(unsafe.Pointer(&session)))
		if err := hresult(hr); err != nil {
			return "", fail(err, "opening a DISM session")
		}
		defer func() {
			hr, _, _ := d.closeSession.Call(uintptr(session))
			err = errors.Join(err, fail(hresult(hr), "closing a DISM session"))
		}()
		return work(d, uintptr(session))
	})
}

func hresult(hr uintptr) error {
	if !failed(uint32(hr)) {
		return nil
	}
	return windows.Errno(uint32(hr))
}
