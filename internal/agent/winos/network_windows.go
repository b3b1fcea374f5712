package winos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/windows"
)

// network is the network of this machine.
type network struct{}

var _ Network = network{}

func (network) NodeIP(ctx context.Context) (netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return netip.Addr{}, err
	}
	table, err := routes()
	if err != nil {
		return netip.Addr{}, err
	}
	way, ok := defaultRoute(table)
	if !ok {
		return netip.Addr{}, fmt.Errorf("finding the default route: %w", ErrNotFound)
	}
	addresses, err := addressesOf(way.Interface)
	if err != nil {
		return netip.Addr{}, err
	}
	ip, ok := addressFor(way.NextHop, addresses)
	if !ok {
		return netip.Addr{}, fmt.Errorf("finding an IPv4 address on interface %d, which has the default route: %w", way.Interface, ErrNotFound)
	}
	return ip, nil
}

// routes reads the IPv4 routing table: https://learn.microsoft.com/en-us/windows/win32/api/netioapi/nf-netioapi-getipforwardtable2.
func routes() ([]route, error) {
	var raw *windows.MibIpForwardTable2
	if err := windows.GetIpForwardTable2(windows.AF_INET, &raw); err != nil {
		return nil, fail(err, "reading the routing table")
	}
	defer windows.FreeMibTable(unsafe.Pointer(raw))
	var table []route
	rows := raw.Rows()
	for i := range rows {
		row := &rows[i]
		link := windows.MibIpInterfaceRow{Family: windows.AF_INET, InterfaceLuid: row.InterfaceLuid, InterfaceIndex: row.InterfaceIndex}
		err := windows.GetIpInterfaceEntry(&link)
		if errors.Is(err, windows.ERROR_NOT_FOUND) || errors.Is(err, windows.ERROR_FILE_NOT_FOUND) {
			continue // the interface has gone
		}
		if err != nil {
			return nil, fail(err, "reading interface %d", row.InterfaceIndex)
		}
		table = append(table, route{
			Destination:     netip.PrefixFrom(addressIn(&row.DestinationPrefix.Prefix), int(row.DestinationPrefix.PrefixLength)),
			NextHop:         addressIn(&row.NextHop),
			Interface:       row.InterfaceIndex,
			Metric:          row.Metric,
			InterfaceMetric: link.Metric,
			Connected:       link.Connected != 0,
		})
	}
	return table, nil
}

// addressesOf reads the IPv4 addresses of one interface.
func addressesOf(index uint32) ([]address, error) {
	var raw *windows.MibUnicastIpAddressTable
	if err := windows.GetUnicastIpAddressTable(windows.AF_INET, &raw); err != nil {
		return nil, fail(err, "reading the addresses of the machine")
	}
	defer windows.FreeMibTable(unsafe.Pointer(raw))
	var addresses []address
	rows := unsafe.Slice(&raw.Table[0], raw.NumEntries)
	for i := range rows {
		row := &rows[i]
		if row.InterfaceIndex != index {
			continue
		}
		addresses = append(addresses, address{
			Prefix: netip.PrefixFrom(addressIn((*windows.RawSockaddrInet)(unsafe.Pointer(&row.Address))), int(row.OnLinkPrefixLength)),
			Usable: row.DadState == windows.IpDadStatePreferred,
		})
	}
	return addresses, nil
}

// addressIn reads the IPv4 address in a SOCKADDR_INET; the zero address if it is of another kind.
func addressIn(union *windows.RawSockaddrInet) netip.Addr {
	if union.Family != windows.AF_INET {
		return netip.Addr{}
	}
	return netip.AddrFrom4((*windows.RawSockaddrInet4)(unsafe.Pointer(union)).Addr)
}

func (network) Listening(ctx context.Context) (map[int]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var all []listener
	for _, family := range []struct {
		number uintptr
		form   tableForm
	}{{windows.AF_INET, tcp4Form}, {windows.AF_INET6, tcp6Form}} {
		table, err := tcpListeners(family.number)
		if err != nil {
			return nil, err
		}
		all = append(all, listeners(table, family.form)...)
	}
	names, err := processNames()
	if err != nil {
		return nil, err
	}
	return programs(all, names), nil
}

var (
	iphlpapi            = windows.NewLazySystemDLL("iphlpapi.dll")
	getExtendedTCPTable = iphlpapi.NewProc("GetExtendedTcpTable")
)

// tcpListeners reads the table of listening TCP ports and their processes:
// https://learn.microsoft.com/en-us/windows/win32/api/iphlpapi/nf-iphlpapi-getextendedtcptable.
func tcpListeners(family uintptr) ([]byte, error) {
	const ownerPIDListener = 3 // TCP_TABLE_OWNER_PID_LISTENER
	size := uint32(16 << 10)
	for {
		buffer := make([]byte, size)
		// The result is the error code itself.
		result, _, _ := getExtendedTCPTable.Call(uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&size)), 0, family, ownerPIDListener, 0)
		switch windows.Errno(result) {
		case windows.ERROR_SUCCESS:
			return buffer, nil
		case windows.ERROR_INSUFFICIENT_BUFFER: // size says how much it wants; the table may grow meanwhile
		case windows.ERROR_NOT_SUPPORTED, windows.WSAEAFNOSUPPORT: // no IPv6 here
			return nil, nil
		default:
			return nil, fail(windows.Errno(result), "reading the listening ports")
		}
	}
}
