package winos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

type network struct{}

var _ Network = network{}

func (network) NodeIP(ctx context.Context) (netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return netip.Addr{}, err
	}
	table, cards, err := routes()
	if err != nil {
		return netip.Addr{}, err
	}
	way, ok := defaultRoute(table)
	if !ok {
		return netip.Addr{}, fmt.Errorf("finding the default route: %w", ErrNotFound)
	}
	ip, ok := addressFor(way.NextHop, cards[way.Interface].addresses)
	if !ok {
		return netip.Addr{}, fmt.Errorf("finding an IPv4 address on interface %d, which has the default route: %w",
			way.Interface, ErrNotFound)
	}
	return ip, nil
}

// routes reads the interfaces that have IPv4, and the rows of the IPv4 routing table for these interfaces:
// https://learn.microsoft.com/en-us/windows/win32/api/netioapi/nf-netioapi-getipforwardtable2.
func routes() (table []route, cards map[uint32]card, err error) {
	if cards, err = networkCards(); err != nil {
		return nil, nil, err
	}
	var raw *windows.MibIpForwardTable2
	if err := windows.GetIpForwardTable2(windows.AF_INET, &raw); err != nil {
		return nil, nil, fail(err, "reading the routing table")
	}
	defer windows.FreeMibTable(unsafe.Pointer(raw))
	rows := raw.Rows()
	for i := range rows {
		row := &rows[i]
		link, there := cards[row.InterfaceIndex]
		if !there {
			continue
		}
		table = append(table, route{
			Destination: netip.PrefixFrom(addressIn(&row.DestinationPrefix.Prefix),
				int(row.DestinationPrefix.PrefixLength)),
			NextHop:         addressIn(&row.NextHop),
			Interface:       row.InterfaceIndex,
			Metric:          row.Metric,
			InterfaceMetric: link.metric,
			Connected:       link.connected,
		})
	}
	return table, cards, nil
}

// dhcpEnabled is IP_ADAPTER_DHCP_ENABLED:
// https://learn.microsoft.com/en-us/windows/win32/api/iptypes/ns-iptypes-ip_adapter_addresses_lh.
const dhcpEnabled = 0x4

const hnsStateKey = `SYSTEM\CurrentControlSet\Services\hns\State`

type card struct {
	metric    uint32
	connected bool
	addresses []address
	name      string
	dynamic   bool // a DHCP server assigned its address
}

// networkCards reads the interfaces that have IPv4. The keys of the result are interface indexes:
// https://learn.microsoft.com/en-us/windows/win32/api/iphlpapi/nf-iphlpapi-getadaptersaddresses.
func networkCards() (map[uint32]card, error) {
	const flags = windows.GAA_FLAG_SKIP_ANYCAST | windows.GAA_FLAG_SKIP_MULTICAST | windows.GAA_FLAG_SKIP_DNS_SERVER
	size := uint32(16 << 10)
	for {
		buffer := make([]byte, size)
		first := (*windows.IpAdapterAddresses)(unsafe.Pointer(&buffer[0]))
		err := windows.GetAdaptersAddresses(windows.AF_INET, flags, 0, first, &size)
		if errors.Is(err, windows.ERROR_BUFFER_OVERFLOW) && size > uint32(len(buffer)) {
			continue
		}
		if errors.Is(err, windows.ERROR_NO_DATA) {
			return nil, nil
		}
		if err != nil {
			return nil, fail(err, "listing network interfaces")
		}
		cards := map[uint32]card{}
		for adapter := first; adapter != nil; adapter = adapter.Next {
			cards[adapter.IfIndex] = card{
				metric:    adapter.Ipv4Metric,
				connected: adapter.OperStatus == windows.IfOperStatusUp,
				addresses: addressesOf(adapter.FirstUnicastAddress),
				name:      windows.UTF16PtrToString(adapter.FriendlyName),
				dynamic:   adapter.Flags&dhcpEnabled != 0,
			}
		}
		return cards, nil
	}
}

// readCards sets the facts about network cards: whether the interface with the default route has its address from DHCP,
// and which interfaces have a default route.
func readCards(facts *Facts) error {
	table, cards, err := routes()
	if err != nil {
		return err
	}
	for _, index := range gateways(table) {
		facts.Gateways = append(facts.Gateways, cards[index].name)
	}
	if way, ok := defaultRoute(table); ok {
		facts.StaticAddress = !cards[way.Interface].dynamic
	}
	disabled, err := number(hnsStateKey, "DeviceLessNicDisabled")
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	facts.DeviceLessNICDisabled = disabled == 1
	return nil
}

func addressesOf(entry *windows.IpAdapterUnicastAddress) []address {
	var addresses []address
	for ; entry != nil; entry = entry.Next {
		if ip, ok := netip.AddrFromSlice(entry.Address.IP()); ok {
			addresses = append(addresses, address{
				Prefix: netip.PrefixFrom(ip.Unmap(), int(entry.OnLinkPrefixLength)),
				Usable: entry.DadState == windows.IpDadStatePreferred,
			})
		}
	}
	return addresses
}

// addressIn returns the IPv4 address in a SOCKADDR_INET. For any other address it returns the zero address.
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
	}{{windows.AF_INET, tcp4()}, {windows.AF_INET6, tcp6()}} {
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

// tcpListeners reads the table of listening TCP ports and their processes:
// https://learn.microsoft.com/en-us/windows/win32/api/iphlpapi/nf-iphlpapi-getextendedtcptable.
func tcpListeners(family uintptr) ([]byte, error) {
	const ownerPIDListener = 3 // TCP_TABLE_OWNER_PID_LISTENER
	getExtendedTCPTable, err := function("iphlpapi.dll", "GetExtendedTcpTable")
	if err != nil {
		return nil, err
	}
	size := uint32(16 << 10)
	for {
		buffer := make([]byte, size)
		// The function returns the error code as its result.
		result, _, _ := getExtendedTCPTable.Call(uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&size)), 0,
			family, ownerPIDListener, 0)
		switch windows.Errno(result) {
		case windows.ERROR_SUCCESS:
			return buffer, nil
		case windows.ERROR_INSUFFICIENT_BUFFER: // size is now large enough, but the table may still grow
		case windows.ERROR_NOT_SUPPORTED, windows.WSAEAFNOSUPPORT: // IPv6 is off
			return nil, nil
		default:
			return nil, fail(windows.Errno(result), "reading the listening ports")
		}
	}
}

func (network) Listen(ctx context.Context, port int) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	// If another program uses a port exclusively, the error is "access denied".
	if errors.Is(err, windows.WSAEADDRINUSE) || errors.Is(err, windows.WSAEACCES) {
		return nil, fmt.Errorf("listening on port %d: %w: %w", port, ErrInUse, err)
	}
	return l, fail(err, "listening on port %d", port)
}

func (network) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", to.String())
	return conn, fail(err, "connecting to %s", to)
}
