package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the processor times in /proc. The kernel calls it USER_HZ (see proc_pid_stat(5)). It is 1/100 s
// on all Linux systems that Go supports.
const tick = time.Second / 100

// processorTimes returns the processor time of this process and of its descendants, by the names of their programs. It
// works on Linux only.
func processorTimes() (map[string]time.Duration, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	all := map[int]processor{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if p, ok := parseStat(string(text)); ok {
			all[p.id] = p
		}
	}
	times := map[string]time.Duration{}
	for _, p := range all {
		for one, ok := p, true; ok; one, ok = all[one.parent] {
			if one.id == os.Getpid() {
				times[p.name] += p.used
				break
			}
		}
	}
	return times, nil
}

// peakOf returns the peak of a process's resident memory in megabytes (a million bytes). It works on Linux only.
func peakOf(process int) (megabytes float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process))
	if err != nil {
		return 0, fmt.Errorf("reading how much memory a process has had: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var kibibytes float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kibibytes); n == 1 {
			return kibibytes * 1024 / 1e6, nil
		}
	}
	return 0, fmt.Errorf("process %d has no peak of memory", process)
}

type processor struct {
	id, parent int
	name       string
	used       time.Duration
}

// parseStat parses the content of /proc/<id>/stat: id (name) state parent … utime stime …. The times are the 14th and
// the 15th field. The name may contain any character.
func parseStat(line string) (p processor, ok bool) {
	id, rest, opened := strings.Cut(line, " (")
	end := strings.LastIndex(rest, ") ")
	if !opened || end < 0 {
		return p, false
	}
	p.name = rest[:end]
	fields := strings.Fields(rest[end+2:])
	if len(fields) < 13 {
		return p, false
	}
	var numbers [4]int
	for i, text := range []string{id, fields[1], fields[11], fields[12]} {
		n, err := strconv.Atoi(text)
		if err != nil {
			return p, false
		}
		numbers[i] = n
	}
	p.id, p.parent, p.used = numbers[0], numbers[1], time.Duration(numbers[2]+numbers[3])*tick
	return p, true
}
