package sim_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestAFullDiskTakesWhatFitsAndSaysSo(t *testing.T) {
	t.Parallel()
	m := machine(t, sim.Options{})
	files := m.Host().Files
	m.SetDiskFree(1000)
	w, err := files.Create(`C:\file`, winos.AccessInherit)
	noError(t, err)
	n, err := w.Write(make([]byte, 600))
	noError(t, err)
	if n != 600 {
		t.Errorf("%d bytes were written", n)
	}
	n, err = w.Write(make([]byte, 600))
	isError(t, err, winos.ErrNoSpace)
	if n != 400 {
		t.Errorf("%d bytes were written", n)
	}
	isError(t, w.Close(), winos.ErrNoSpace)
	if free := factsOf(t, m).DiskFree; free != 0 {
		t.Errorf("%d bytes are free", free)
	}
	isError(t, winos.WriteFile(files, `C:\second`, strings.NewReader("x"), winos.AccessInherit), winos.ErrNoSpace)
	if found, err := winos.Exists(files, `C:\second.tmp`); found || err != nil {
		t.Errorf("the temporary file was not removed: %v", err)
	}
	noError(t, files.Remove(`C:\file`))
	if free := factsOf(t, m).DiskFree; free != 1000 {
		t.Errorf("%d bytes are free", free)
	}
	noError(t, winos.WriteFile(files, `C:\second`, bytes.NewReader(make([]byte, 1000)), winos.AccessInherit))
	noError(t, files.Rename(`C:\second`, `C:\third`))
	m.SetDiskFree(0)
	f, err := m.OpenFile(`C:\third`, os.O_RDWR)
	noError(t, err)
	_, err = f.WriteAt([]byte("overwritten"), 100)
	noError(t, err)
	isError(t, f.Truncate(1001), winos.ErrNoSpace)
	noError(t, f.Truncate(10))
	noError(t, f.Close())
	if free := factsOf(t, m).DiskFree; free != 990 {
		t.Errorf("%d bytes are free", free)
	}
}

func TestAFaultyPathFailsAsTold(t *testing.T) {
	t.Parallel()
	m := machine(t, sim.Options{})
	files := m.Host().Files
	write(t, m, `C:\k\held`, "x")
	m.SetPathFault(`c:\K\HELD`, winos.ErrInUse)
	_, err := files.Open(`C:\k\held`)
	isError(t, err, winos.ErrInUse)
	isError(t, files.Remove(`C:\k\held`), winos.ErrInUse)
	isError(t, winos.WriteFile(files, `C:\k\held`, strings.NewReader("y"), winos.AccessInherit), winos.ErrInUse)
	isError(t, files.MkdirAll(`C:\k\held`, winos.AccessInherit), winos.ErrInUse)
	m.SetPathFault(`C:\k\held`, nil)
	noError(t, files.Remove(`C:\k\held`))
}

// reference is a simple file. The test compares the simulated file with it.
type reference struct{ bytes []byte }

func (r *reference) writeAt(p []byte, off int) {
	if need := off + len(p); need > len(r.bytes) {
		r.bytes = append(r.bytes, make([]byte, need-len(r.bytes))...)
	}
	copy(r.bytes[off:], p)
}

func (r *reference) truncate(size int) {
	if size <= len(r.bytes) {
		r.bytes = r.bytes[:size:size]
		return
	}
	r.bytes = append(r.bytes, make([]byte, size-len(r.bytes))...)
}

func TestAFileIsABunchOfBytesHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	m := machine(t, sim.Options{})
	var want reference
	f, err := m.OpenFile(`C:\file`, os.O_RDWR|os.O_CREATE)
	noError(t, err)
	before := factsOf(t, m).DiskFree
	for range 1500 {
		off := random.IntN(500 << 10)
		switch random.IntN(8) {
		case 0:
			noError(t, f.Truncate(int64(off)))
			want.truncate(off)
		case 1:
			noError(t, f.Close())
			f, err = m.OpenFile(`C:\file`, os.O_RDWR)
			noError(t, err)
		case 2:
			p := make([]byte, 500<<10)
			n, err := f.ReadAt(p, int64(off))
			if off+len(p) > len(want.bytes) && !errors.Is(err, io.EOF) {
				t.Fatalf("reading beyond the end: %v", err)
			}
			if expect := want.bytes[min(off, len(want.bytes)):min(off+len(p), len(want.bytes))]; !bytes.Equal(p[:n],
				expect) {
				t.Fatalf("read at %d: %d bytes that differ from %d", off, n, len(expect))
			}
		default:
			p := bytes.Repeat([]byte{byte(random.Uint32())}, 1+random.IntN(1<<random.IntN(18)))
			_, err := f.WriteAt(p, int64(off))
			noError(t, err)
			want.writeAt(p, off)
		}
		if free := factsOf(t, m).DiskFree; free != before-int64(len(want.bytes)) {
			t.Fatalf("%d bytes are free, want %d", free, before-int64(len(want.bytes)))
		}
	}
	noError(t, f.Close())
	have, err := winos.ReadFile(m.Host().Files, `C:\file`)
	noError(t, err)
	if !bytes.Equal(have, want.bytes) {
		t.Error("after all writes, the content differs")
	}
}

func TestAFileIsWrittenInPiecesFromAllSides(t *testing.T) {
	t.Parallel()
	m := machine(t, sim.Options{})
	content := make([]byte, 5<<20+123)
	for i := range content {
		content[i] = byte(i * i >> 7)
	}
	f, err := m.OpenFile(`C:\file`, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	noError(t, err)
	const piece = 32 << 10
	var all sync.WaitGroup
	for off := 0; off < len(content); off += piece {
		all.Go(func() {
			if _, err := f.WriteAt(content[off:min(off+piece, len(content))], int64(off)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	noError(t, f.Close())
	have, err := winos.ReadFile(m.Host().Files, `C:\file`)
	noError(t, err)
	if !bytes.Equal(have, content) {
		t.Error("the content differs")
	}
}

func TestFlagsOfAnOpenMeanWhatTheySay(t *testing.T) {
	t.Parallel()
	m := machine(t, sim.Options{})
	write(t, m, `C:\k\file`, "content")
	_, err := m.OpenFile(`C:\k\file`, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	isError(t, err, os.ErrExist)
	_, err = m.OpenFile(`C:\k\second`, os.O_RDWR)
	isError(t, err, os.ErrNotExist)
	f, err := m.OpenFile(`C:\k\file`, os.O_WRONLY|os.O_APPEND)
	noError(t, err)
	_, err = io.WriteString(f, " and more")
	noError(t, err)
	_, err = f.Read(make([]byte, 1))
	isError(t, err, winos.ErrDenied)
	noError(t, f.Close())
	f, err = m.OpenFile(`C:\k\file`, os.O_RDONLY)
	noError(t, err)
	info, err := f.Stat()
	noError(t, err)
	if info.Size != int64(len("content and more")) || info.Name != "file" {
		t.Errorf("the file is %+v", info)
	}
	_, err = f.WriteAt([]byte("x"), 0)
	isError(t, err, winos.ErrDenied)
	isError(t, m.Host().Files.Remove(`C:\k\file`), winos.ErrInUse)
	noError(t, f.Close())
	isError(t, f.Close(), os.ErrClosed)
	noError(t, m.Host().Files.Remove(`C:\k\file`))
}

func TestFiveHundredMachinesAreCheap(t *testing.T) {
	const machines, payload = 500, 1 << 20
	content := make([]byte, payload)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range content {
		content[i] = byte(random.Uint32())
	}
	goroutines, memory := runtime.NumGoroutine(), heap()
	all := make([]*sim.Machine, machines)
	for i := range all {
		all[i] = machine(t, sim.Options{Hostname: fmt.Sprintf("WIN-%d", i)})
		install(t, all[i], "a", nil)
		noError(t, all[i].Host().Services.Start(t.Context(), "a"))
		noError(t, winos.WriteFile(all[i].Host().Files, `C:\k\payload`, bytes.NewReader(content), winos.AccessInherit))
	}
	each := (heap() - memory - payload) / machines
	t.Logf("a machine needs %d KiB", each>>10)
	if each > 128<<10 {
		t.Error("a machine needs too much memory")
	}
	// Each running service has one goroutine.
	if n := runtime.NumGoroutine() - goroutines; n > machines+10 {
		t.Errorf("there are %d goroutines for %d machines", n, machines)
	}
	have, err := winos.ReadFile(all[machines-1].Host().Files, `C:\k\payload`)
	noError(t, err)
	if !bytes.Equal(have, content) {
		t.Error("the content differs")
	}
	runtime.KeepAlive(all)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestASnapshotShowsWhatChanged(t *testing.T) {
	t.Parallel()
	root := []byte{0x30, 0x01, 0x00}
	m := machine(t, sim.Options{Roots: [][]byte{root}})
	ctx, h := t.Context(), m.Host()
	before := m.Snapshot()
	write(t, m, `C:\var\log\wicd\wicd.log`, "log")
	write(t, m, `C:\k\new`, "x")
	install(t, m, "svc", nil)
	noError(t, h.Environment.Set(ctx, "HTTP_PROXY", "p"))
	noError(t, h.Environment.Set(ctx, "os", "Other"))
	noError(t, h.Trust.Remove(ctx, root))
	noError(t, h.System.SetHostname(ctx, "other"))
	_, err := m.CreateHNSNetwork(winos.HNSNetwork{Name: "net", Subnet: prefix("10.1.2.0/24")})
	noError(t, err)
	m.SetFeature("Hyper-V", winos.FeaturePending)
	keys := func(lines []string) []string {
		var keys []string
		for _, line := range lines {
			key, _, _ := strings.Cut(line, ": ")
			keys = append(keys, key)
		}
		return keys
	}
	want := []string{
		fmt.Sprintf("- certificate %x", sha256.Sum256(root)), "+ environment HTTP_PROXY", "~ environment OS",
		"+ feature Hyper-V",
		`+ file C:\K`, `+ file C:\K\NEW`, `+ file C:\K\SVC.EXE`, "~ hostname", "+ network net", "+ service SVC",
	}
	have := keys(sim.Diff(before, m.Snapshot(), `C:\var\log`))
	if !slices.Equal(have, want) {
		t.Errorf("the changes are %q", have)
	}
	if all := keys(sim.Diff(before, m.Snapshot())); len(all) != len(want)+4 {
		t.Errorf("with the log, the changes are %q", all)
	}
	if same := sim.Diff(m.Snapshot(), m.Snapshot()); len(same) > 0 {
		t.Errorf("without a change, the changes are %q", same)
	}
}
