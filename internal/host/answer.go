package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/windows-nodes/wmco/internal/contract"
)

// MaxDetail limits the detail of a problem from a host, in bytes.
const MaxDetail = 1 << 10

// maxChecked limits the text of an error about an answer, in bytes.
const maxChecked = 200

// DecodeAnswer decodes a host's answer into answer, a pointer to a contract.Answer. On an error, answer stays
// unchanged. The uploaded daemon has our own version, so anything that it would not write is refused: unknown
// fields, trailing data, a missing result. Problems in the answer are shown in conditions and logs, so their
// reasons are checked and their details are cut and made printable.
func DecodeAnswer(raw []byte, answer any) error {
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
		return errors.New(Printable(err.Error(), maxChecked))
	}
	target.Elem().Set(fresh.Elem())
	return nil
}

// check calls the result's own check, if it has one, for whether our daemon could have sent it.
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

// strict decodes one JSON value without unknown fields or trailing data. Its errors quote little of the
// input.
func strict(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return errors.New(Printable(err.Error(), maxChecked))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end")
	}
	return nil
}

// settle sanitises every contract.Problem in a decoded answer.
func settle(v reflect.Value) {
	if problem, is := addressed[contract.Problem](v); is {
		if !problem.Reason.Known() {
			problem.Detail = fmt.Sprintf("%s: %s", problem.Reason, problem.Detail)
			problem.Reason = contract.ReasonDaemonCallFailed
		}
		problem.Detail = Printable(problem.Detail, MaxDetail)
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

// addressed returns a pointer to v if its type is T.
func addressed[T any](v reflect.Value) (*T, bool) {
	if !v.CanAddr() {
		return nil, false
	}
	t, is := v.Addr().Interface().(*T)
	return t, is
}

// Printable returns a host's text in a form fit for an error of one line: no control characters, no invalid
// UTF-8, cut to limit.
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
