package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/windows-nodes/wmco/internal/contract"
)

// MaxDetail limits the detail of a problem from a host, in bytes.
const MaxDetail = 1 << 10

// maxChecked limits the text of an error about an answer, in bytes.
const maxChecked = 200

// Call runs a verb of the uploaded daemon. If the verb fails, the answer contains the problem. Call returns an error if
// there is no answer, or if the answer is invalid.
func Call[T any](ctx context.Context, conn Conn, verb contract.Verb, request any) (contract.Answer[T], error) {
	body, err := json.Marshal(request)
	if err != nil {
		// The encoder's error may quote the request.
		return contract.Answer[T]{}, fmt.Errorf("the request of type %T can't be encoded", request)
	}
	raw, err := conn.Call(ctx, verb, body)
	if err != nil {
		return contract.Answer[T]{}, err
	}
	answer, err := DecodeAnswer[T](raw)
	if err != nil {
		return contract.Answer[T]{}, contract.NewProblem(contract.ReasonDaemonCallFailed, "reading the answer: %v", err)
	}
	return answer, nil
}

// DecodeAnswer decodes a host's answer. The uploaded daemon has the operator's version, so DecodeAnswer refuses what
// this daemon never writes: unknown fields, trailing data, a missing result. Problems in the answer appear in
// conditions and logs, so their reasons are checked, and their details are shortened and made printable.
func DecodeAnswer[T any](raw []byte) (contract.Answer[T], error) {
	var none, answer contract.Answer[T]
	var envelope contract.Answer[json.RawMessage]
	if err := strict(raw, &envelope); err != nil {
		return none, err
	}
	switch isMissing := len(envelope.Result) == 0 || string(envelope.Result) == "null"; {
	case isMissing && envelope.Problem == nil:
		return none, errors.New("it has neither a result nor a problem")
	case !isMissing:
		if err := strict(envelope.Result, &answer.Result); err != nil {
			return none, err
		}
	}
	if answer.Problem = envelope.Problem; answer.Problem != nil {
		settle(answer.Problem)
	}
	switch result := any(&answer.Result).(type) {
	case *contract.PreflightAnswer:
		settleAll(result.Problems)
	case *contract.CleanupAnswer:
		settleAll(result.Left)
	}
	if checked, can := any(answer.Result).(interface{ Check() error }); can {
		if err := checked.Check(); err != nil {
			return none, errors.New(Printable(err.Error(), maxChecked))
		}
	}
	return answer, nil
}

// The function `strict` decodes one JSON value without unknown fields or trailing data. Its errors quote little input.
func strict(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return errors.New(Printable(err.Error(), maxChecked))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON value")
	}
	return nil
}

// settle makes a host's problem safe to show: it replaces an unknown reason, and makes the detail short and printable.
func settle(problem *contract.Problem) {
	if !problem.Reason.Known() {
		problem.Detail = fmt.Sprintf("%s: %s", problem.Reason, problem.Detail)
		problem.Reason = contract.ReasonDaemonCallFailed
	}
	problem.Detail = Printable(problem.Detail, MaxDetail)
}

func settleAll(problems []contract.Problem) {
	for i := range problems {
		settle(&problems[i])
	}
}

// Printable prepares a host's text for a one-line error: valid UTF-8, no control characters, cut after limit bytes.
func Printable(text string, limit int) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"),
		func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 }), " ")
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= limit {
		return text
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
