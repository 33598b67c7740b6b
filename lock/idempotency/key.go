package idempotency

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

const (
	header    = "Idempotency-Key"
	maxLength = 255
)

var errMissing = errors.New("the header Idempotency-Key is missing")

// keyOf returns the key of a request. The draft has a quoted string of structured fields (RFC
// 9651); many clients send the bare text, which means the same here.
func keyOf(h http.Header) (string, error) {
	values := h.Values(header)
	switch {
	case len(values) == 0:
		return "", errMissing
	case len(values) > 1:
		return "", errors.New("there is more than one header Idempotency-Key")
	}
	text := strings.Trim(values[0], " \t")
	key, quoted := strings.CutPrefix(text, `"`)
	if quoted {
		var closed bool
		if key, closed = unquote(key); !closed {
			return "", errors.New(`the Idempotency-Key is no string as in "8e03978e"`)
		}
	} else if strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`",;\`, c) }) {
		return "", errors.New("the Idempotency-Key needs quotes, or is not ASCII")
	}
	if key == "" || len(key) > maxLength {
		return "", fmt.Errorf("the Idempotency-Key has %d characters; 1 to %d are accepted", len(key), maxLength)
	}
	return key, nil
}

// unquote returns the string that begins text and that a quotation mark closes, at its end.
func unquote(text string) (key string, closed bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), i == len(text)-1
		case c == '\\':
			i++
			if i == len(text) || text[i] != '"' && text[i] != '\\' {
				return "", false
			}
			b.WriteByte(text[i])
		case c < ' ' || c > '~':
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}
