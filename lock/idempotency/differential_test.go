package idempotency_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leasewheel/leasewheel/lock/idempotency"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// step is something that a handler does, and its text.
type step struct {
	text string
	do   func(w http.ResponseWriter)
}

var steps = rapid.Custom(func(t *rapid.T) step {
	name := rapid.SampledFrom([]string{"X-A", "x-a", "Vary", "Set-Cookie", "Content-Type", "Content-Encoding", "Connection", "X-Hop", "Trailer"}).Draw(t, "name")
	value := rapid.SampledFrom([]string{"a", "", " b ", "text/html", "x-hop", "close, X-Hop", "\xfc", "a\r\nb: c"}).Draw(t, "value")
	status := rapid.SampledFrom([]int{103, 200, 201, 204, 205, 301, 304, 400, 429, 500, 503, 999}).Draw(t, "status")
	text := rapid.SampledFrom([]string{"", "<html>", "text", strings.Repeat("\x00\xff", 3000)}).Draw(t, "text")
	return rapid.SampledFrom([]step{
		{fmt.Sprintf("Set(%q, %q)", name, value), func(w http.ResponseWriter) { w.Header().Set(name, value) }},
		{fmt.Sprintf("Add(%q, %q)", name, value), func(w http.ResponseWriter) { w.Header().Add(name, value) }},
		{fmt.Sprintf("Header()[%q] = nil", name), func(w http.ResponseWriter) { w.Header()[name] = nil }},
		{fmt.Sprintf("WriteHeader(%d)", status), func(w http.ResponseWriter) { w.WriteHeader(status) }},
		{fmt.Sprintf("Write(%.6q)", text), func(w http.ResponseWriter) { _, _ = io.WriteString(w, text) }},
	}).Draw(t, "step")
})

// A client gets the reply that the handler makes without the middleware, and the same again. It
// differs in what is documented: headers of the connection, and the length, which is known here.
func TestReplyIsThatOfTheHandler(t *testing.T) {
	var program []step
	calls := 0
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		for _, s := range program {
			s.do(w)
		}
	})
	mux := http.NewServeMux()
	mux.Handle("/bare", handler)
	mux.Handle("/once", wrap(t, locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{}, handler))
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // of steps that net/http refuses
	server.Start()
	defer server.Close()

	key := 0
	type answer struct {
		status int
		header http.Header
		text   string
	}
	send := func(path string) (a answer, replayed bool) {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, http.NoBody)
		require.NoError(t, err)
		q.Header.Set("Idempotency-Key", strconv.Itoa(key))
		r, err := server.Client().Do(q)
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		replayed = r.Header.Get("Idempotent-Replayed") == "true"
		for _, name := range []string{"Idempotent-Replayed", "Date", "Content-Length", "Connection", "X-Hop", "Trailer"} {
			r.Header.Del(name)
		}
		return answer{r.StatusCode, r.Header, string(text)}, replayed
	}
	rapid.Check(t, func(t *rapid.T) {
		program = rapid.SliceOfN(steps, 0, 8).Draw(t, "program")
		for _, s := range program {
			t.Log(s.text)
		}
		key++
		bare, _ := send("/bare")
		calls = 0
		first, replayed := send("/once")
		require.False(t, replayed)
		require.Equal(t, bare, first)
		again, replayed := send("/once")
		require.Equal(t, bare, again)
		final := bare.status < 500 && bare.status != http.StatusTooManyRequests
		require.Equal(t, final, replayed)
		require.Equal(t, final, calls == 1)
	})
}
