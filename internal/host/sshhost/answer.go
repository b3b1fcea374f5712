package sshhost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/windows-nodes/wmco/internal/contract"
)

// errAnswerTooLong ends the reading of an answer that no daemon of ours would give.
var errAnswerTooLong = errors.New("the answer is longer than any honest one")

// maxDetail bounds in bytes the detail of a problem that a host reports.
const maxDetail = 1 << 10

// maxChecked bounds in bytes what an error about an answer says.
const maxChecked = 200

// decodeAnswer reads a host's answer into answer, a pointer to a contract.Answer, which stays as it
// was when there is an error. The uploaded daemon is of our own version, so whatever it would not
// write is refused: unknown fields, anything after the end, no result. Problems in the answer end
// up in conditions and logs; their reasons are known ones and their details short and printable
// afterwards.
func decodeAnswer(raw []byte, answer any) error {
	var envelope struct {
		Problem *contract.Problem `json:"problem"`
		Result  json.RawMessage   `json:"result"`
	}
	if err := strict(raw, &envelope); err != nil {
		return err
	}
	if envelope.Problem == nil && (len(envelope.Result) == 0 || string(envelope.Result) == "null") {
		return errors.New("it has neither a result nor a problem")
	}
	target := reflect.ValueOf(answer)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("%T is not a pointer to decode into", answer)
	}
	fresh := reflect.New(target.Type().Elem())
	if err := strict(raw, fresh.Interface()); err != nil {
		return err
	}
	settle(fresh.Elem())
	if err := check(fresh.Elem()); err != nil {
		return errors.New(printable(err.Error(), maxChecked))
	}
	target.Elem().Set(fresh.Elem())
	return nil
}

// check lets the result of an answer, if it can, say whether an honest daemon may have given it.
func check(answer reflect.Value) error {
	result := answer
	if answer.Kind() == reflect.Struct {
		result = answer.FieldByName("Result")
	}
	if result.IsValid() && result.CanInterface() {
		if checked, can := result.Interface().(interface{ Check() error }); can {
			return checked.Check()
		}
	}
	return nil
}

// strict decodes one JSON value that has no unknown fields and nothing after it. Its errors quote
// little of what was read.
func strict(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return errors.New(printable(err.Error(), maxChecked))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end")
	}
	return nil
}

// settle walks through a decoded answer and makes every contract.Problem in it fit to be shown.
func settle(v reflect.Value) {
	if problem, is := addressed[contract.Problem](v); is {
		if !problem.Reason.Known() {
			problem.Detail = fmt.Sprintf("%s: %s", problem.Reason, problem.Detail)
			problem.Reason = contract.ReasonDaemonCallFailed
		}
		problem.Detail = printable(problem.Detail, maxDetail)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			settle(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				settle(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			settle(v.Index(i))
		}
	}
}

// addressed gives a pointer to a value that is of type T.
func addressed[T any](v reflect.Value) (*T, bool) {
	if !v.CanAddr() {
		return nil, false
	}
	t, is := v.Addr().Interface().(*T)
	return t, is
}
