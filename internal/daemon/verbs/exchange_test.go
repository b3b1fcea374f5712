package verbs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/verbs"
)

type request struct {
	Name string `json:"name"`
}

func serve(t *testing.T, in string, run func(context.Context, request) (string, error)) (contract.Answer[string],
	error) {
	t.Helper()
	var out bytes.Buffer
	err := verbs.Serve(t.Context(), verbs.Streams{In: strings.NewReader(in), Out: &out}, run)
	var answer contract.Answer[string]
	if err == nil {
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			t.Fatalf("the answer is %q: %v", out.String(), err)
		}
	} else if out.Len() > 0 {
		t.Errorf("an error, and an answer %q", out.String())
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
		"a problem beside a result": {in: `{"name":"x"}`,
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

func TestARequestThatIsNotUnderstoodHasNoAnswer(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"{", `{"colour":"red"}`, "hello"} {
		_, err := serve(t, in, func(context.Context, request) (string, error) {
			t.Error("the verb was run")
			return "", nil
		})
		if err == nil {
			t.Errorf("%q was understood", in)
		}
	}
}

func TestIDsCanNotLeaveTheDirectory(t *testing.T) {
	t.Parallel()
	for id, legal := range map[string]bool{"a-1": true, "": false, `..\x`: false, "a/b": false, "a b": false,
		"a.b": false, strings.Repeat("a", 65): false} {
		if _, err := verbs.NewExchangeDir(nil, `C:\Users\x`, id); (err == nil) != legal {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := verbs.NewExchangeDir(nil, "", "a"); err == nil {
		t.Error("an exchange directory without a home")
	}
}
