package driver_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
)

func TestValidateName(t *testing.T) {
	for _, name := range []string{
		"a", "orders:42", "straße", "锁", " ", "a b", "%", "{user:7}:cart", "a{b}c", "a}b{c}", "{a}{", "{a{b}",
		"{a}{b}", "{a}{b}c", "a{b}c}", "redisson_lock_token:a", "leasewheel_b", "a:timeout", "timeout{a}", "x:redisson_a:{b}",
		strings.Repeat("x", driver.MaxName),
	} {
		assert.NoError(t, driver.ValidateName(name), "%q", name)
	}
	for name, reason := range map[string]string{
		"":                                    "empty",
		strings.Repeat("x", driver.MaxName+1): "too long",
		"\xff":                                "not UTF-8",
		"a\x00b":                              "control",
		"a\nb":                                "control",
		"a\u0085b":                            "control",
		"{":                                   "lone brace",
		"}":                                   "lone brace",
		"a{b":                                 "lone brace",
		"a}b":                                 "lone brace",
		"{}a":                                 "lone brace",
		"a{}b{c}":                             "lone brace",
		"{a}":                                 "in braces as a whole",
		"{a:b}":                               "in braces as a whole",
		"{{a}:b}":                             "in braces as a whole",
		"{a}:timeout":                         "a key of another lock",
		"{a}:b:timeout":                       "a key of another lock",
		"redisson_lock_token:{a}":             "a key of another lock",
		"redisson_unlock_latch:{a}:b":         "a key of another lock",
		"leasewheel_lock_line:{a}:b":          "a key of another lock",
		"leasewheel_queue_due:{a}":            "a key of another lock",
		"leasewheel:client:{a}":               "a key of another lock",
		"{a}:me:1:rwlock_timeout:1":           "a key of another lock",
		"}{":                                  "lone brace",
	} {
		err := driver.ValidateName(name)
		var refused *driver.NameError
		require.ErrorAs(t, err, &refused, "%q", name)
		assert.Equal(t, name, refused.Name)
		assert.Contains(t, err.Error(), reason)
		assert.Contains(t, err.Error(), "lock: name ")
		assert.NotContains(t, err.Error(), "\n", "an error is one line")
		assert.Less(t, len(err.Error()), 250, "a huge name does not make a huge error")
	}
}

func TestEscapeName(t *testing.T) {
	for text, want := range map[string]string{
		"orders:42": "orders:42",
		"straße":    "straße",
		"a{b}":      "a%7Bb%7D",
		"100%":      "100%25",
		"a\nb":      "a%0Ab",
		"\xff":      "%FF",
		"\u0085":    "%C2%85",
		"\ufffd":    "\ufffd", // a genuine replacement character
	} {
		assert.Equal(t, want, driver.EscapeName(text))
	}
}

func FuzzEscapeName(f *testing.F) {
	for _, seed := range []string{"", "a", "a{b", "}x", "100%", "\xff", "%7B", "\u2028", "\ufffd\xef\xbf"} {
		f.Add(seed, "a")
	}
	f.Fuzz(func(t *testing.T, text, other string) {
		name := driver.EscapeName(text)
		if err := driver.ValidateName(name); err != nil && text != "" && len(name) <= driver.MaxName {
			t.Errorf("%q became %q: %v", text, name, err)
		}
		if unescape(t, name) != text {
			t.Errorf("%q became %q, which stands for %q", text, name, unescape(t, name))
		}
		if text != other && name == driver.EscapeName(other) {
			t.Errorf("%q and %q both became %q", text, other, name)
		}
	})
}

// unescape is the inverse of EscapeName.
func unescape(t *testing.T, name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b.WriteByte(name[i])
			continue
		}
		if i+2 >= len(name) {
			t.Fatalf("%q ends within an escape", name)
		}
		const hex = "0123456789ABCDEF"
		b.WriteByte(byte(strings.IndexByte(hex, name[i+1])<<4 | strings.IndexByte(hex, name[i+2])))
		i += 2
	}
	return b.String()
}

func FuzzValidateName(f *testing.F) {
	for _, seed := range []string{"", "a", "a{b", "{a}", "}x", "{}", "a}b{c}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := driver.ValidateName(name)
		if err != nil {
			if !errors.As(err, new(*driver.NameError)) {
				t.Errorf("%q: %v is no NameError", name, err)
			}
			return
		}
		if name == "" || len(name) > driver.MaxName || !utf8.ValidString(name) {
			t.Errorf("accepted %q", name)
		}
		derived := "prefix:{" + name + "}"
		if strings.Contains(name, "{") {
			derived = "prefix:" + name
		}
		if hashed(name) != hashed(derived) {
			t.Errorf("a cluster hashes %q by %q, and its derived key %q by %q", name, hashed(name), derived, hashed(derived))
		}
	})
}

// hashed returns the part of a key that Redis Cluster hashes, by its specification: the
// text between the first "{" and the first "}" after it, unless that is empty.
func hashed(key string) string {
	open := strings.Index(key, "{")
	if open < 0 {
		return key
	}
	length := strings.Index(key[open+1:], "}")
	if length <= 0 {
		return key
	}
	return key[open+1 : open+1+length]
}
