package verbs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/verbs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

type request struct {
	Name string `json:"name"`
}

func serve(t *testing.T, in string, run func(context.Context, request) (string, error)) (contract.Answer[string],
	error) {
	t.Helper()
	var out bytes.Buffer
	err := verbs.Serve(t.Context(), verbs.Streams(strings.NewReader(in), &out), run)
	var answer contract.Answer[string]
	if err == nil {
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			t.Fatalf("the answer is %q: %v", out.String(), err)
		}
	} else if out.Len() > 0 {
		t.Errorf("an error was returned together with an answer %q", out.String())
	}
	return answer, err
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in      string
		err     error
		result  string
		problem contract.Reason
	}{
		"a result":      {in: `{"name":"x"}`, result: "x"},
		"nothing asked": {in: " \n", result: ""},
		"a problem together with a result": {in: `{"name":"x"}`,
			err: contract.NewProblem(contract.ReasonDiskFull, "full"), result: "x", problem: contract.ReasonDiskFull},
		"an error without a reason": {in: `{"name":"x"}`, err: errors.New("oops"), result: "x",
			problem: contract.ReasonInternal},
		"a wrapped problem keeps its reason": {in: `{}`,
			err:     errors.Join(errors.New("a"), contract.NewProblem(contract.ReasonDiskFull, "full")),
			problem: contract.ReasonDiskFull},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, err := serve(t, c.in, func(_ context.Context, r request) (string, error) { return r.Name, c.err })
			if err != nil {
				t.Fatal(err)
			}
			if answer.Result != c.result || (answer.Problem == nil) != (c.problem == "") || answer.Problem != nil &&
				answer.Problem.Reason != c.problem {
				t.Errorf("got %+v", answer)
			}
		})
	}
}

// scanned simulates a virus scanner: after the first attempt to open or remove a file, it holds the file open for a
// moment.
type scanned struct {
	winos.Files
	dir   string
	until map[string]time.Time
}

func (s scanned) hold(doing, path string) error {
	if !contract.Within(s.dir, path) {
		return nil
	}
	if _, known := s.until[doing+path]; !known {
		s.until[doing+path] = time.Now().Add(100 * time.Millisecond)
	}
	if time.Now().Before(s.until[doing+path]) {
		return fmt.Errorf("%s %s: %w", doing, path, winos.ErrInUse)
	}
	return nil
}

// Open implements winos.Files.
func (s scanned) Open(path string) (io.ReadCloser, error) {
	if err := s.hold("opening", path); err != nil {
		return nil, err
	}
	return s.Files.Open(path)
}

// Remove implements winos.Files.
func (s scanned) Remove(path string) error {
	if err := s.hold("removing", path); err != nil {
		return err
	}
	return s.Files.Remove(path)
}

func TestWhatWasSentIsTakenAsSoonAsAScannerHasClosedIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	host := r.Host()
	stream := send(t, host.Files, r.Home(), wanted())
	dir := verbs.RPCPath(r.Home())
	if err := winos.WriteFile(host.Files, dir+`\`+contract.RequestName("1"), strings.NewReader("{}"),
		winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	host.Files = scanned{host.Files, dir, map[string]time.Time{}}
	channel, err := verbs.RPCDir(host.Files, r.Home(), "1")
	if err != nil {
		t.Fatal(err)
	}
	if content, err := channel.Request(); err != nil || string(content) != "{}" {
		t.Errorf("the request is %q, %v", content, err)
	}
	if answer, err := verbs.Receive(t.Context(), host, r.Home(), stream); err != nil || len(answer.Missing) > 0 {
		t.Errorf("after the transfer, %v is missing: %v", answer.Missing, err)
	}
	if there, err := winos.Exists(host.Files, dir+`\`+stream.Stream); there || err != nil {
		t.Errorf("the stream still exists: %v", err)
	}
}

// The host may have joined another cluster by itself before, and the files of that join may still exist.
func TestA86_AStreamIsUnpackedOnAHostThatOnceJoinedByItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	host := r.Host()
	stream := send(t, host.Files, r.Home(), wanted())
	if err := winos.WriteFile(host.Files, verbs.RPCPath(r.Home())+`\`+contract.HostStateFile, strings.NewReader("{"),
		winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	if answer, err := verbs.Receive(t.Context(), host, r.Home(), stream); err != nil || len(answer.Missing) > 0 {
		t.Errorf("%v is missing: %v", answer.Missing, err)
	}
}

func TestARequestThatIsNotUnderstoodHasNoAnswer(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"{", `{"colour":"red"}`, "hello"} {
		_, err := serve(t, in, func(context.Context, request) (string, error) {
			t.Error("the verb was executed")
			return "", nil
		})
		if err == nil {
			t.Errorf("the request %q was accepted", in)
		}
	}
}

func TestIDsCanNotLeaveTheDirectory(t *testing.T) {
	t.Parallel()
	for id, legal := range map[string]bool{"a-1": true, "": false, `..\x`: false, "a/b": false, "a b": false,
		"a.b": false, strings.Repeat("a", 65): false} {
		if _, err := verbs.RPCDir(nil, `C:\Users\x`, id); (err == nil) != legal {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := verbs.RPCDir(nil, "", "a"); err == nil {
		t.Error("an RPC directory without a home")
	}
}
