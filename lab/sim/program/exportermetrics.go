package program

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// metrics serves some metrics of windows_exporter under the same names and with the same labels. Their values come from
// the machine. If the machine doesn't know a value, the value grows with time. A test in tools/prometheus compares the
// names with the source code of windows_exporter.
type metrics struct {
	*sim.Process
	began time.Time
}

// ServeHTTP implements http.Handler.
func (m metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/metrics" {
		http.NotFound(w, r)
		return
	}
	facts, err := m.Host.System.Facts(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	up := m.Host.System.Now().Sub(m.began).Seconds()
	counter, gauge := family(w, "counter"), family(w, "gauge")
	counter("windows_cpu_time_total", sample{`core="0,0",mode="idle"`, up * 0.9},
		sample{`core="0,0",mode="user"`, up * 0.06}, sample{`core="0,0",mode="privileged"`, up * 0.04})
	gauge("windows_cpu_info", sample{`device_id="CPU0",name="a stand-in"`, 1})
	gauge("windows_memory_available_bytes", sample{"", float64(facts.Memory / 2)})
	gauge("windows_os_visible_memory_bytes", sample{"", float64(facts.Memory)})
	gauge("windows_logical_disk_size_bytes", sample{`volume="C:"`, float64(facts.DiskTotal)})
	gauge("windows_logical_disk_free_bytes", sample{`volume="C:"`, float64(facts.DiskFree)})
	counter("windows_net_bytes_received_total", sample{`nic="Ethernet"`, up * 1000})
	counter("windows_net_bytes_sent_total", sample{`nic="Ethernet"`, up * 100})
	m.services(r, gauge)
	var cpu, memory, received, sent []sample
	for _, id := range m.Machine.Containers() {
		label := fmt.Sprintf("container_id=%q", id)
		cpu, memory = append(cpu, sample{label, up / 10}), append(memory, sample{label, 1 << 20})
		label += `,interface="Ethernet"`
		received, sent = append(received, sample{label, up * 10}), append(sent, sample{label, up})
	}
	counter("windows_container_cpu_usage_seconds_total", cpu...)
	gauge("windows_container_memory_usage_private_working_set_bytes", memory...)
	counter("windows_container_network_receive_bytes_total", received...)
	counter("windows_container_network_transmit_bytes_total", sent...)
	m.text(w)
}

// The method services writes metrics of services. Like windows_exporter, it converts names to lower case.
func (m metrics) services(r *http.Request, gauge func(name string, samples ...sample)) {
	var infos, states []sample
	names, err := m.Host.Services.List(r.Context())
	if err != nil {
		return
	}
	for _, name := range names {
		service, err := m.Host.Services.Get(r.Context(), name)
		if err != nil {
			continue // the service has just been deleted
		}
		label := fmt.Sprintf("name=%q", strings.ToLower(name))
		infos = append(infos, sample{fmt.Sprintf("%s,process_id=\"%d\"", label, service.PID), 1})
		running := 0.0
		if service.State == winos.ServiceRunning {
			running = 1
		}
		states = append(states, sample{label + `,state="running"`, running},
			sample{label + `,state="stopped"`, 1 - running})
	}
	// The host network service is part of Windows, so the service manager of the simulated machine doesn't list it.
	infos = append(infos, sample{fmt.Sprintf(`name="hns",process_id="%d"`, m.Machine.HNSProcess()), 1})
	states = append(states, sample{`name="hns",state="running"`, 1}, sample{`name="hns",state="stopped"`, 0})
	gauge("windows_service_info", infos...)
	gauge("windows_service_state", states...)
}

// The method text writes the content of the files that the textfile collector reads.
func (m metrics) text(w io.Writer) {
	files, err := m.Host.Files.List(contract.DirMetrics)
	if err != nil {
		return
	}
	for _, file := range files {
		if content, err := winos.ReadFile(m.Host.Files, contract.DirMetrics+`\`+file.Name); err == nil &&
			strings.HasSuffix(file.Name, ".prom") {
			_, _ = w.Write(content) // the client may have disconnected
		}
	}
}

// sample is one value of a metric. labels are its labels.
type sample struct {
	labels string
	value  float64
}

// family returns a function that writes metrics of one type. `kind` is the name of this type.
func family(w io.Writer, kind string) func(name string, samples ...sample) {
	return func(name string, samples ...sample) {
		if len(samples) == 0 {
			return
		}
		_, _ = fmt.Fprintf(w, "# TYPE %s %s\n", name, kind)
		for _, s := range samples {
			_, _ = fmt.Fprintf(w, "%s{%s} %g\n", name, s.labels, s.value)
		}
	}
}
