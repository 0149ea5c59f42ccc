package plugins

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxMessage is how many bytes of an Error's message etcdinit shows.
const MaxMessage = 1024

// Error is why there is no answer.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// RetryAfter is how many seconds to wait at least before asking again.
	RetryAfter float64 `json:"retryAfter,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Retryf is an error of code retry: etcdinit asks again, not before after has
// passed.
func Retryf(after time.Duration, format string, args ...any) error {
	return &Error{Code: CodeRetry, Message: fmt.Sprintf(format, args...), RetryAfter: after.Seconds()}
}

// Configf is an error of code config: the parameters cannot be right.
func Configf(format string, args ...any) error {
	return &Error{Code: CodeConfig, Message: fmt.Sprintf(format, args...)}
}

// asError is err as the contract has it: an *Error in err's chain keeps its
// code, a deadline is retry, everything else internal.
func asError(err error) *Error {
	e := &Error{Code: CodeInternal, Message: err.Error()}
	var coded *Error
	switch {
	case errors.As(err, &coded):
		e.Code, e.RetryAfter = coded.Code, coded.RetryAfter
	case errors.Is(err, context.DeadlineExceeded):
		e.Code = CodeRetry
	}
	e.Message = OneLine(e.Message, MaxMessage)
	return e
}

// OneLine is s as one line of at most limit bytes: white space and control
// characters become single spaces, what is not UTF-8 a question mark.
func OneLine(s string, limit int) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if len(s) <= limit {
		return s
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
