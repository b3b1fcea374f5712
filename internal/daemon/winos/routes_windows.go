package winos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"unsafe"

	"golang.org/x/sys/windows"
)

type routing struct{}

var _ Routes = routing{}

func (routing) Addresses(ctx context.Context) ([]netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cards, err := networkCards()
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for _, c := range cards {
		for _, a := range c.addresses {
			if ip := a.Prefix.Addr(); c.connected && a.Usable && ip.Is4() && !slices.Contains(all, ip) {
				all = append(all, ip)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all, nil
}

func (routing) Table(ctx context.Context) ([]Route, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	table, cards, err := routes()
	if err != nil {
		return nil, err
	}
	return shown(table, func(index uint32) string { return cards[index].name }), nil
}

// Ensure implements Routes. It adds a row with
// https://learn.microsoft.com/en-us/windows/win32/api/netioapi/nf-netioapi-createipforwardentry2. Windows deletes such
// a row at the next boot, or when the row's interface disappears.
func (routing) Ensure(ctx context.Context, to netip.Addr) (added bool, err error) {
	if err := errors.Join(ctx.Err(), check4(to)); err != nil {
		return false, err
	}
	table, _, err := routes()
	if err != nil {
		return false, err
	}
	way, has, ok := detour(table, to)
	if !ok {
		return false, fmt.Errorf("finding the default route: %w", ErrNotFound)
	}
	if has {
		return false, nil
	}
	initialize, err := function("iphlpapi.dll", "InitializeIpForwardEntry")
	if err != nil {
		return false, err
	}
	create, err := function("iphlpapi.dll", "CreateIpForwardEntry2")
	if err != nil {
		return false, err
	}
	var row windows.MibIpForwardRow2
	_, _, _ = initialize.Call(uintptr(unsafe.Pointer(&row)))
	row.InterfaceIndex = way.Interface
	row.DestinationPrefix = windows.IpAddressPrefix{Prefix: socketAddress(to), PrefixLength: uint8(to.BitLen())}
	row.NextHop = socketAddress(way.NextHop)
	row.Metric = 0 // Windows adds the interface's metric
	row.Protocol = windows.MIB_IPPROTO_NETMGMT
	// The function returns the error code as its result.
	result, _, _ := create.Call(uintptr(unsafe.Pointer(&row)))
	switch windows.Errno(result) {
	case windows.ERROR_SUCCESS:
		return true, nil
	case windows.ERROR_OBJECT_ALREADY_EXISTS: // another program has just added the same route
		return false, nil
	}
	return false, fail(windows.Errno(result), "adding a route to %s", to)
}

func (routing) Remove(ctx context.Context, to netip.Addr) error {
	if err := errors.Join(ctx.Err(), check4(to)); err != nil {
		return err
	}
	var raw *windows.MibIpForwardTable2
	if err := windows.GetIpForwardTable2(windows.AF_INET, &raw); err != nil {
		return fail(err, "reading the routing table")
	}
	defer windows.FreeMibTable(unsafe.Pointer(raw))
	remove, err := function("iphlpapi.dll", "DeleteIpForwardEntry2")
	if err != nil {
		return err
	}
	rows := raw.Rows()
	var failed []error
	for i := range rows {
		row := &rows[i]
		if addressIn(&row.DestinationPrefix.Prefix) != to || int(row.DestinationPrefix.PrefixLength) != to.BitLen() {
			continue
		}
		result, _, _ := remove.Call(uintptr(unsafe.Pointer(row)))
		if code := windows.Errno(result); code != windows.ERROR_SUCCESS && code != windows.ERROR_NOT_FOUND &&
			code != windows.ERROR_FILE_NOT_FOUND {
			failed = append(failed, fail(code, "removing the route to %s", to))
		}
	}
	return errors.Join(failed...)
}

func check4(to netip.Addr) error {
	if !to.Is4() {
		return fmt.Errorf("a route to %s: it is not an IPv4 address: %w", to, ErrInvalidName)
	}
	return nil
}

func socketAddress(ip netip.Addr) (union windows.RawSockaddrInet) {
	four := (*windows.RawSockaddrInet4)(unsafe.Pointer(&union))
	four.Family, four.Addr = windows.AF_INET, ip.As4()
	return union
}
