package winos

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"
)

// table builds a table of listeners like Windows, with random data in the upper half of each port.
func table(form tableForm, count int, all ...listener) []byte {
	raw := binary.LittleEndian.AppendUint32(nil, uint32(count))
	for _, l := range all {
		row := make([]byte, form.row)
		binary.BigEndian.PutUint16(row[form.port:], uint16(l.Port))
		row[form.port+2], row[form.port+3] = 0xaa, 0xbb
		binary.LittleEndian.PutUint32(row[form.pid:], l.PID)
		raw = append(raw, row...)
	}
	return raw
}

func TestTablesOfListenersAreRead(t *testing.T) {
	t.Parallel()
	all := []listener{{22, 900}, {10250, 4321}, {65535, 1 << 31}}
	for name, form := range map[string]tableForm{"IPv4": tcp4(), "IPv6": tcp6()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := listeners(append(table(form, 3, all...), make([]byte, 1000)...), form); !slices.Equal(got, all) {
				t.Errorf("got %v, want %v", got, all)
			}
			if got := listeners(table(form, 9, all...), form); !slices.Equal(got, all) {
				t.Errorf("a count that is too high: %v", got)
			}
			if got := listeners(table(form, 3, all...)[:4+form.row+1], form); !slices.Equal(got, all[:1]) {
				t.Errorf("a truncated table: %v", got)
			}
			if got := listeners(nil, form); got != nil {
				t.Errorf("an empty table: %v", got)
			}
		})
	}
}

func TestPortsAreNamedByTheFirstProgramThatIsKnown(t *testing.T) {
	t.Parallel()
	got := programs([]listener{{22, 1}, {22, 2}, {80, 3}, {443, 2}}, map[uint32]string{2: "sshd.exe"})
	if want := map[int]string{22: "sshd.exe", 80: "", 443: "sshd.exe"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
