package winos

import "encoding/binary"

// tableForm is the layout of a table of TCP listeners. The table begins with the number of rows. row is the length of a
// row, and port and pid are offsets in a row, all in bytes.
type tableForm struct{ row, port, pid int }

// tcp4 and tcp6 are the layouts of GetExtendedTcpTable for IPv4 and IPv6:
// https://learn.microsoft.com/en-us/windows/win32/api/tcpmib/ns-tcpmib-mib_tcprow_owner_pid and
// …/ns-tcpmib-mib_tcp6row_owner_pid.
func tcp4() tableForm { return tableForm{row: 24, port: 8, pid: 20} }
func tcp6() tableForm { return tableForm{row: 56, port: 20, pid: 52} }

type listener struct {
	Port int
	PID  uint32
}

// listeners parses a table of TCP listeners. It skips truncated rows.
func listeners(table []byte, form tableForm) []listener {
	const head = 4
	if len(table) < head {
		return nil
	}
	count := int(binary.LittleEndian.Uint32(table))
	var all []listener
	for rows := table[head:]; count > 0 && len(rows) >= form.row; count, rows = count-1, rows[form.row:] {
		all = append(all, listener{
			// The port is in network byte order in the lower two bytes. The upper two bytes are undefined.
			Port: int(binary.BigEndian.Uint16(rows[form.port:])),
			PID:  binary.LittleEndian.Uint32(rows[form.pid:]),
		})
	}
	return all
}

// programs maps ports to the names of the listening programs. If a process isn't in `names`, the name is empty.
func programs(all []listener, names map[uint32]string) map[int]string {
	ports := map[int]string{}
	for _, l := range all {
		if name := names[l.PID]; ports[l.Port] == "" {
			ports[l.Port] = name
		}
	}
	return ports
}
