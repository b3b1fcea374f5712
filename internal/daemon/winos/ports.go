package winos

import "encoding/binary"

// tableForm says where things are in a table of TCP listeners: a count of rows, then rows of a
// fixed length.
type tableForm struct{ row, port, pid int }

// tcp4 and tcp6 are the forms of the tables that GetExtendedTcpTable gives for IPv4 and IPv6:
// https://learn.microsoft.com/en-us/windows/win32/api/tcpmib/ns-tcpmib-mib_tcprow_owner_pid and
// …/ns-tcpmib-mib_tcp6row_owner_pid.
func tcp4() tableForm { return tableForm{row: 24, port: 8, pid: 20} }
func tcp6() tableForm { return tableForm{row: 56, port: 20, pid: 52} }

// listener is one listening TCP port and the process that has it.
type listener struct {
	Port int
	PID  uint32
}

// listeners reads such a table. Rows that the table is too short for are left out.
func listeners(table []byte, form tableForm) []listener {
	const head = 4
	if len(table) < head {
		return nil
	}
	count := int(binary.LittleEndian.Uint32(table))
	var all []listener
	for rows := table[head:]; count > 0 && len(rows) >= form.row; count, rows = count-1, rows[form.row:] {
		all = append(all, listener{
			// The port is in network order in the lower two bytes; the upper two may hold anything.
			Port: int(binary.BigEndian.Uint16(rows[form.port:])),
			PID:  binary.LittleEndian.Uint32(rows[form.pid:]),
		})
	}
	return all
}

// programs names the program of each port. names holds what is known of processes; a port whose
// process is not known gets the empty name.
func programs(all []listener, names map[uint32]string) map[int]string {
	ports := map[int]string{}
	for _, l := range all {
		if name := names[l.PID]; ports[l.Port] == "" {
			ports[l.Port] = name
		}
	}
	return ports
}
