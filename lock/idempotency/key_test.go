package idempotency_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/idempotency"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// Keys are quoted strings of structured fields, or bare texts.
func TestKeys(t *testing.T) {
	h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{}, func(w http.ResponseWriter, r *http.Request) {
		attempt, _ := idempotency.From(r.Context())
		w.Header().Set("Key", attempt.Key)
	})
	for text, want := range map[string]string{
		`"8e03978e-40d5"`:                    "8e03978e-40d5",
		`8e03978e-40d5`:                      "8e03978e-40d5",
		` "a b" `:                            "a b",
		`"a~"`:                               "a~",
		`"a\"b\\c"`:                          `a"b\c`,
		`"a`:                                 "",
		`"a" `:                               "a",
		`"a";b=1`:                            "",
		`"a\b"`:                              "",
		`"a\`:                                "",
		"\"a\x01\"":                          "",
		`""`:                                 "",
		`a b`:                                "",
		`a,b`:                                "",
		"käse":                               "",
		strings.Repeat("x", 255):             strings.Repeat("x", 255),
		strings.Repeat("x", 256):             "",
		`"` + "\u00e9" + `"`:                 "",
		"a\x7f":                              "",
		strings.Repeat(" ", 5):               "",
		`"` + strings.Repeat("x", 300) + `"`: "",
	} {
		w := post(h, text, "body")
		assert.Equal(t, want == "", w.Code == http.StatusBadRequest, "%q: %d", text, w.Code)
		assert.Equal(t, want, w.Header().Get("Key"))
	}
}
