//go:build real

package interop

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNamesOfEveryScript checks that names in every script are the same lock on both sides.
func TestNamesOfEveryScript(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		java, wheel := open(t, redisson(t, version), s.address), open(t, golang(t), s.address)
		for name, suffix := range map[string]string{
			"plain":                 "orders:42",
			"hash tag":              "{user:7}:cart",
			"hash tag at the end":   "cart:{user:7}",
			"Cyrillic":              "заказ:42",
			"CJK":                   "注文:42",
			"emoji":                 "🔒:42",
			"spaces and characters": `a b/c?d*e[f]"g'h%20`,
			"512 bytes":             strings.Repeat("x", 400),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				record(t, "11 names: "+name, java.name, "mutex", both, nil)
				for _, d := range directions(java.of(t), wheel.of(t)) {
					for _, kind := range []string{"mutex", "fair", "write"} {
						h, w, of := d.holder.of(t), d.waiter.of(t), fresh(kind)+suffix
						require.NotEqual(t, "0", h.do("a", "lock", kind, of, never, renewed))
						granted := w.begin("b", "lock", kind, of, 20_000, renewed)
						eventuallyListens(t, s, 1, of)
						h.do("a", "unlock", kind, of)
						r := await(t, granted)
						require.NoError(t, r.err)
						assert.NotEqual(t, "0", r.text, "nobody woke the waiter for %q", of)
						w.do("b", "unlock", kind, of)
					}
				}
			})
		}
	})
}

// eventuallyListens waits for a subscriber of a name that contains special characters of
// patterns.
func eventuallyListens(t *testing.T, s *site, n int, name string) {
	t.Helper()
	s.awaitListeners(t, strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`).Replace(name), n)
}

// TestNameMapper adds the same prefix to names on both sides.
func TestNameMapper(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		java, wheel := open(t, redisson(t, version), s.address, "prefix=shop:"), open(t, golang(t), s.address, "prefix=shop:")
		bare := open(t, golang(t), s.address)
		for _, d := range directions(java, wheel) {
			for _, k := range locks {
				if k.kind == "fair" && !atLeast(version, "3.52.0") {
					continue // its queue has the name without the prefix, see docs/interop.md
				}
				t.Run(d.name+" "+k.kind, func(t *testing.T) {
					t.Parallel()
					var text string
					record(t, "11 name mapper: a prefix", java.name, k.kind, d.name, func() string { return text })
					h, w := d.holder.of(t), d.waiter.of(t)
					median := wakeUp(t, s, h, w, k)
					text = woken(median)
					assert.Less(t, median, awake)
					name := fresh("mapped")
					h.do("a", "lock", k.holder, name, never, renewed)
					assert.Equal(t, "0", w.do("b", "lock", k.waiter, name, never, renewed))
					b := bare.of(t)
					assert.Equal(t, "1", b.do("c", "locked", "mutex", "shop:"+name), "the key has the prefix")
					h.do("a", "unlock", k.holder, name)
				})
			}
		}
	})
}

// TestCodecs uses other codecs in Java's client: locks do not use them.
func TestCodecs(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		wheel := open(t, golang(t), s.address)
		for _, codec := range []string{"org.redisson.client.codec.StringCodec", "org.redisson.codec.Kryo5Codec", "org.redisson.codec.SerializationCodec"} {
			t.Run(codec[strings.LastIndex(codec, ".")+1:], func(t *testing.T) {
				t.Parallel()
				java := open(t, redisson(t, version), s.address, "codec="+codec)
				record(t, "11 codec: "+codec[strings.LastIndex(codec, ".")+1:], java.name, "mutex, semaphore, latch", both, nil)
				w := wheel.of(t)
				name := fresh("codec")
				require.NotEqual(t, "0", java.do("a", "lock", "mutex", name, never, renewed))
				assert.Equal(t, "0", w.do("b", "lock", "mutex", name, never, renewed))
				java.do("a", "unlock", "mutex", name)
				testSemaphore(t, s, java, w)
				testLatch(t, s, w, java)
			})
		}
	})
}
