package idempotency_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/idempotency"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// patient has limits that no slow machine reaches, for tests in real time.
var patient = lock.Config{TTL: 10 * time.Minute, RequestTimeout: time.Minute}

// wrap returns h behind the middleware.
func wrap(t *testing.T, l *lock.Locker, replies idempotency.Replies, c idempotency.Config, h http.HandlerFunc) http.Handler {
	t.Helper()
	once, err := idempotency.New(l, replies, c)
	require.NoError(t, err)
	return once(h)
}

// post sends a request with a key, unless it is "".
func post(h http.Handler, key, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/orders?shop=7", strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// counted returns a handler that counts its calls and replies with the number.
func counted(calls *atomic.Int32) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, calls.Add(1)) }
}

// A repetition gets the stored reply, whole, without another call of the handler.
func TestRepetition(t *testing.T) {
	var calls int
	h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{}, func(w http.ResponseWriter, r *http.Request) {
		calls++
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		attempt, ok := idempotency.From(r.Context())
		assert.True(t, ok)
		assert.Contains(t, attempt.Key, "order ")
		assert.Positive(t, attempt.Token)
		w.Header().Set("Location", "/orders/1")
		w.Header().Set("Idempotent-Replayed", "false") // as that of another server behind a proxy
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
		w.Header().Set("Content-Disposition", "attachment; filename=\xfcber.txt")
		w.Header()["Content-Type"] = nil // none is to be detected
		w.Header().Set("Connection", "close, X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set(http.TrailerPrefix+"Sum", "1")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("Late", "1")
		fmt.Fprintf(w, "%d: %s", calls, body)
		assert.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
	})
	first := post(h, `"order 7"`, "two books")
	again := post(h, `"order 7"`, "two books")
	for _, w := range []*httptest.ResponseRecorder{first, again} {
		assert.Equal(t, http.StatusCreated, w.Code)
		assert.Equal(t, "1: two books", w.Body.String())
		assert.Equal(t, "/orders/1", w.Header().Get("Location"))
		assert.Equal(t, []string{"a=1", "b=2"}, w.Header().Values("Set-Cookie"))
		assert.Equal(t, "attachment; filename=\xfcber.txt", w.Header().Get("Content-Disposition"), "Latin-1")
		assert.Contains(t, w.Header(), "Content-Type")
		assert.Empty(t, w.Header().Values("Content-Type"))
		for _, dropped := range []string{"Connection", "X-Hop", http.TrailerPrefix + "Sum", "Late"} {
			assert.NotContains(t, w.Header(), dropped)
		}
	}
	assert.Equal(t, "false", first.Header().Get("Idempotent-Replayed"))
	assert.Equal(t, []string{"true"}, again.Header().Values("Idempotent-Replayed"))
	assert.Equal(t, "2: two books", post(h, `"order 8"`, "two books").Body.String(), "another key")
}

// A request that a program passes to the handler itself may have no body, not even an empty one.
func TestRequestWithoutABody(t *testing.T) {
	var calls atomic.Int32
	h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{}, counted(&calls))
	for range 2 {
		assert.Equal(t, "1", post(h, "k", "", func(r *http.Request) { r.Body = nil }).Body.String())
	}
	assert.Equal(t, "1", post(h, "k", "").Body.String(), "an empty body is the same")
}

// Requests that are not repetitions are refused, with a problem document.
func TestRefusals(t *testing.T) {
	var calls atomic.Int32
	l := locktest.New(t, patient)
	h := wrap(t, l, idempotency.NewMemory(), idempotency.Config{MaxBody: 100}, counted(&calls))
	require.Equal(t, http.StatusOK, post(h, "k", "body").Code)
	limited := func(r *http.Request) { r.Body = http.MaxBytesReader(nil, r.Body, 10) } // by an outer handler
	broken := func(r *http.Request) { r.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), brokenBody{})) }
	for name, test := range map[string]struct {
		key, body string
		change    func(*http.Request)
		want      int
		detail    string
	}{
		"Missing":     {"", "body", nil, http.StatusBadRequest, ""},
		"Malformed":   {`"a`, "body", nil, http.StatusBadRequest, ""},
		"Twice":       {"k", "body", func(r *http.Request) { r.Header.Add("Idempotency-Key", "l") }, http.StatusBadRequest, ""},
		"BrokenBody":  {"x", "", broken, http.StatusBadRequest, ""},
		"LargeBody":   {"x", strings.Repeat("x", 101), nil, http.StatusRequestEntityTooLarge, "larger than 100 bytes"},
		"OuterLimit":  {"x", strings.Repeat("x", 11), limited, http.StatusRequestEntityTooLarge, "larger than 10 bytes"},
		"OtherBody":   {"k", "other", nil, http.StatusUnprocessableEntity, ""},
		"OtherTarget": {"k", "body", func(r *http.Request) { r.URL.RawQuery = "shop=8" }, http.StatusUnprocessableEntity, ""},
		"OtherMethod": {"k", "body", func(r *http.Request) { r.Method = http.MethodPatch }, http.StatusUnprocessableEntity, ""},
	} {
		t.Run(name, func(t *testing.T) {
			change := test.change
			if change == nil {
				change = func(*http.Request) {}
			}
			w := post(h, test.key, test.body, change)
			assert.Equal(t, test.want, w.Code)
			assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			assert.Contains(t, w.Body.String(), fmt.Sprintf(`"status":%d`, test.want))
			assert.Contains(t, w.Body.String(), test.detail)
			assert.True(t, json.Valid(w.Body.Bytes()), "one document")
		})
	}
	require.EqualValues(t, 1, calls.Load())

	get := httptest.NewRecorder()
	h.ServeHTTP(get, httptest.NewRequest(http.MethodGet, "/orders", nil))
	require.Equal(t, "2", get.Body.String(), "other methods pass")
	optional := wrap(t, l, idempotency.NewMemory(), idempotency.Config{Optional: true}, counted(&calls))
	require.Equal(t, "3", post(optional, "", "body").Body.String())
	require.Equal(t, http.StatusBadRequest, post(optional, `"a`, "body").Code)
	for _, c := range []idempotency.Config{
		{Keep: -1},
		{MaxBody: -1},
		{MaxReply: -1},
		{Lock: lock.Options{Heartbeat: time.Second}},
		{Lock: lock.Options{TTL: time.Nanosecond}},
		{Lock: lock.Options{Fixed: true, Passes: 1}},
		{Lock: lock.Options{MinHold: time.Hour, MaxHold: time.Minute}},
	} {
		_, err := idempotency.New(l, idempotency.NewMemory(), c)
		require.Error(t, err, "%+v", c)
	}
	_, err := idempotency.New(nil, idempotency.NewMemory(), idempotency.Config{})
	require.Error(t, err)
	_, err = idempotency.New(l, nil, idempotency.Config{})
	require.Error(t, err)
	require.NoError(t, l.Close())
	_, err = idempotency.New(l, idempotency.NewMemory(), idempotency.Config{})
	require.ErrorIs(t, err, lock.ErrClosed)
}

// What http.StripPrefix removes belongs to the target: the middleware of one path does not replay
// the reply of another's handler.
func TestMountedPaths(t *testing.T) {
	once, err := idempotency.New(locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{})
	require.NoError(t, err)
	mux := http.NewServeMux()
	for _, shop := range []string{"/ann", "/bob"} {
		mux.Handle(shop+"/", http.StripPrefix(shop, once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, shop, r.URL)
		}))))
	}
	order := func(target string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, target, strings.NewReader("body"))
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	for range 2 {
		require.Equal(t, "/ann/orders", order("/ann/orders").Body.String())
		require.Equal(t, http.StatusUnprocessableEntity, order("/bob/orders").Code)
	}
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A second request is refused while the first is in progress, in another process, too, and the
// client's end does not end the first.
func TestInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, replies := locktest.StartMemory(t), idempotency.NewMemory()
		var calls atomic.Int32
		working := func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Hour)
			assert.NoError(t, r.Context().Err())
			assert.Equal(t, "value", r.Context().Value(key{}))
			counted(&calls)(w, r)
		}
		first := wrap(t, memory.Locker(t, lock.Config{}), replies, idempotency.Config{}, working)
		second := wrap(t, memory.Locker(t, lock.Config{}), replies, idempotency.Config{}, working)
		ctx, leave := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		ended := make(chan *httptest.ResponseRecorder)
		go func() {
			ended <- post(first, "k", "body", func(r *http.Request) { *r = *r.WithContext(ctx) })
		}()
		time.Sleep(time.Minute)
		leave()
		w := post(second, "k", "body")
		assert.Equal(t, http.StatusConflict, w.Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		assert.Equal(t, http.StatusUnprocessableEntity, post(second, "k", "other").Code)
		assert.Equal(t, "1", (<-ended).Body.String())
		assert.Equal(t, "1", post(second, "k", "body").Body.String())
		assert.EqualValues(t, 1, calls.Load())
	})
}

type key struct{}

// Of many requests at a time, in several processes, one is carried out.
func TestManyAtATime(t *testing.T) {
	memory, replies := locktest.StartMemory(t), idempotency.NewMemory()
	var calls atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		h := wrap(t, memory.Locker(t, patient), replies, idempotency.Config{}, counted(&calls))
		for range 50 {
			all.Go(func() {
				for w := post(h, "k", "body"); ; w = post(h, "k", "body") {
					if w.Code == http.StatusOK {
						assert.Equal(t, "1", w.Body.String())
						return
					}
					assert.Equal(t, http.StatusConflict, w.Code)
				}
			})
		}
	}
	all.Wait()
	require.EqualValues(t, 1, calls.Load())
}

// An attempt without a stored reply is followed by another, which Interrupted can take on.
func TestInterruptedAttempts(t *testing.T) {
	for name, first := range map[string]http.HandlerFunc{
		"Panics":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"Fails":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"IsTooMany": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"FailsAtLength": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, err := io.WriteString(w, strings.Repeat("x", 101))
			assert.NoError(t, err)
		},
	} {
		for _, interrupted := range []bool{false, true} {
			t.Run(fmt.Sprint(name, interrupted), func(t *testing.T) {
				calls, recovered := 0, 0
				c := idempotency.Config{MaxReply: 100}
				if interrupted {
					c.Interrupted = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						recovered++
						w.WriteHeader(http.StatusAccepted)
					})
				}
				h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), c, func(w http.ResponseWriter, r *http.Request) {
					if calls++; calls == 1 {
						first(w, r)
						return
					}
					w.WriteHeader(http.StatusAccepted)
				})
				func() {
					defer func() { _ = recover() }()
					assert.GreaterOrEqual(t, post(h, "k", "body").Code, 400)
				}()
				assert.Equal(t, http.StatusUnprocessableEntity, post(h, "k", "other").Code, "the same key is another request's")
				for range 2 {
					assert.Equal(t, http.StatusAccepted, post(h, "k", "body").Code)
				}
				want := [2]int{2, 0}
				if interrupted {
					want = [2]int{1, 1}
				}
				assert.Equal(t, want, [2]int{calls, recovered})
			})
		}
	}
}

// sending is a connection on which something happens before the reply is sent.
type sending struct {
	*httptest.ResponseRecorder
	before func()
}

func (s sending) WriteHeader(status int) {
	s.before()
	s.ResponseRecorder.WriteHeader(status)
}

// The lock is held while the handler works, not while a client receives its reply, which may
// take for ever; nor one that another request has stored just before the lock was granted.
func TestSlowClientHoldsNoLock(t *testing.T) {
	stored := func(next idempotency.Record) idempotency.Record {
		return idempotency.Record{Token: next.Token - 1, Fingerprint: next.Fingerprint, Reply: []byte(`{"Status": 200}`)}
	}
	for want, replies := range map[int]idempotency.Replies{
		http.StatusBadGateway: idempotency.NewMemory(),
		http.StatusOK:         finding{Replies: idempotency.NewMemory(), found: stored},
	} {
		var calls int
		h := wrap(t, locktest.New(t, patient), replies, idempotency.Config{}, func(w http.ResponseWriter, _ *http.Request) {
			if calls++; calls == 1 {
				w.WriteHeader(http.StatusBadGateway)
			}
		})
		var again *httptest.ResponseRecorder
		slow := sending{httptest.NewRecorder(), func() { again = post(h, "k", "body") }}
		r := httptest.NewRequest(http.MethodPost, "/orders?shop=7", strings.NewReader("body"))
		r.Header.Set("Idempotency-Key", "k")
		h.ServeHTTP(slow, r)
		require.Equal(t, want, slow.Code)
		require.Equal(t, http.StatusOK, again.Code, "broken promise: the handler has ended")
	}
}

// A handler that has declared a longer reply, as one whose source broke off, gets its connection
// closed by net/http. Here it is a failure, too: a part is not replayed as the whole.
func TestIncompleteReply(t *testing.T) {
	for length, want := range map[string]int{
		"":     http.StatusCreated,
		"none": http.StatusCreated,
		"3":    http.StatusCreated,
		"4":    http.StatusCreated,
		"5":    http.StatusInternalServerError,
	} {
		var calls atomic.Int32
		h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{}, func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.Header().Set("Content-Length", length)
			w.WriteHeader(http.StatusCreated)
			_, err := io.WriteString(w, "half")
			assert.NoError(t, err)
		})
		for range 2 {
			assert.Equal(t, want, post(h, "k", "body").Code, "declared %q", length)
		}
		assert.EqualValues(t, 1, calls.Load())
	}
	for _, status := range []int{http.StatusNotModified, http.StatusNoContent} {
		h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5") // of what was not modified
			w.WriteHeader(status)
		})
		assert.Equal(t, status, post(h, "k", "body").Code)
	}
}

// Names of headers may have any case, as those that a program copies from an API in lower case.
func TestHeadersOfAnyCase(t *testing.T) {
	length := "5"
	h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{
			"connection": "close, x-hop", "x-hop": "1", "transfer-encoding": "chunked", "content-length": length,
			"idempotent-replayed": "false", "X-Kept": "1", "x-kept": "2",
		} {
			w.Header()[name] = []string{value}
		}
		fmt.Fprint(w, "whole")
	})
	for _, replayed := range []string{"false", "true"} {
		w := post(h, "whole", "body")
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, http.Header{
			"Content-Length": {"5"}, "Idempotent-Replayed": {replayed}, "X-Kept": {"1", "2"},
		}, w.Header())
	}
	length = "6"
	require.Equal(t, http.StatusInternalServerError, post(h, "part", "body").Code)
}

// What outer handlers have set stays: each header that the handler sets not, and the parts of
// lists, such as the cookie of a session and the origin that the reply varies by.
func TestHeadersOfOuterHandlers(t *testing.T) {
	h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "private")
		w.Header().Add("Vary", "Accept")
		http.SetCookie(w, &http.Cookie{Name: "basket", Value: "7"})
	})
	n := 0
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Request-Id", fmt.Sprint(n))
		w.Header().Add("Vary", "Origin")
		http.SetCookie(w, &http.Cookie{Name: "session", Value: fmt.Sprint(n)})
		h.ServeHTTP(w, r)
	})
	for _, n := range []string{"1", "2"} { // the reply, and its repetition
		header := post(outer, "key", "body").Header()
		assert.Equal(t, []string{"private"}, header["Cache-Control"])
		assert.Equal(t, []string{n}, header["X-Request-Id"])
		assert.Equal(t, []string{"Origin", "Accept"}, header["Vary"])
		assert.Equal(t, []string{"session=" + n, "basket=7"}, header["Set-Cookie"])
	}
}

// A reply that is too large is a failure, and the repetition's as well: the effect happened.
func TestTooLargeReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var calls atomic.Int32
		c := idempotency.Config{MaxReply: 100, Interrupted: counted(&calls), Logger: slog.New(slog.NewTextHandler(&log, nil))}
		size := c.MaxReply
		h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), c, func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusCreated)
			for range size {
				_, err := io.WriteString(w, "x")
				assert.NoError(t, err)
			}
		})
		assert.Equal(t, http.StatusCreated, post(h, "largest", "body").Code)
		synctest.Wait()
		assert.Empty(t, log.String())
		size++
		for _, replayed := range []string{"", "true"} {
			w := post(h, "k", "body")
			assert.Equal(t, http.StatusInternalServerError, w.Code)
			assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			assert.Contains(t, w.Body.String(), "too large")
			assert.Empty(t, w.Header().Get("Location"))
			assert.Equal(t, replayed, w.Header().Get("Idempotent-Replayed"))
		}
		synctest.Wait()
		assert.Contains(t, log.String(), "larger than Config.MaxReply")
		assert.EqualValues(t, 2, calls.Load())
	})
}

// So it is with a proxy, which panics if it cannot write what the other server has replied.
func TestTooLargeReplyOfAProxy(t *testing.T) {
	var calls atomic.Int32
	orders := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		fmt.Fprint(w, strings.Repeat("x", 101))
	}))
	defer orders.Close()
	target, err := url.Parse(orders.URL)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	front := httptest.NewServer(wrap(t, locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{MaxReply: 100}, proxy.ServeHTTP))
	defer front.Close()
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, io.MultiReader(strings.NewReader("in chunks")))
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "k")
		response, err := front.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusInternalServerError, response.StatusCode)
	}
	require.EqualValues(t, 1, calls.Load())
}

// A handler whose lock is lost has its context ended. Its reply is neither sent nor stored, even
// if it is late: the next attempt's is.
func TestLostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, replies := locktest.StartMemory(t), idempotency.NewMemory()
		var calls atomic.Int32
		finish := make(chan struct{})
		handler := func(w http.ResponseWriter, r *http.Request) {
			n := calls.Add(1)
			if n == 1 {
				<-r.Context().Done()
				assert.ErrorIs(t, context.Cause(r.Context()), lock.ErrLost)
				<-finish
			}
			fmt.Fprint(w, n)
		}
		h := wrap(t, memory.Locker(t, lock.Config{}), replies, idempotency.Config{}, handler)
		ended := make(chan *httptest.ResponseRecorder)
		go func() { ended <- post(h, "k", "body") }()
		synctest.Wait()
		memory.DeleteAll()
		time.Sleep(time.Minute)
		other := wrap(t, memory.Locker(t, lock.Config{}), replies, idempotency.Config{}, handler)
		assert.Equal(t, "2", post(other, "k", "body").Body.String())
		close(finish)
		w := <-ended
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.Equal(t, "2", post(h, "k", "body").Body.String())
	})
}

// Nor is the reply stored if no other attempt has begun: the context of its handler had ended.
func TestLostLockWithoutSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := locktest.StartMemory(t)
		var calls atomic.Int32
		h := wrap(t, memory.Locker(t, lock.Config{}), idempotency.NewMemory(), idempotency.Config{}, func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) == 1 {
				memory.DeleteAll()
				<-r.Context().Done()
			}
			fmt.Fprint(w, calls.Load())
		})
		assert.Equal(t, http.StatusServiceUnavailable, post(h, "k", "body").Code)
		assert.Equal(t, "2", post(h, "k", "body").Body.String())
	})
}

// A handler is not called if the lock is lost as its attempt is recorded.
func TestLostLockBeforeTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := locktest.StartMemory(t)
		slow := paused{idempotency.NewMemory(), func(idempotency.Record) {
			memory.DeleteAll()
			time.Sleep(time.Minute)
		}, func(idempotency.Record) error { return nil }}
		var calls atomic.Int32
		h := wrap(t, memory.Locker(t, lock.Config{}), slow, idempotency.Config{}, counted(&calls))
		assert.Equal(t, http.StatusServiceUnavailable, post(h, "k", "body").Code)
		assert.Zero(t, calls.Load())
	})
}

// Nor is it called if the lock's time is over by then, though its loss is not reported yet, as after a
// standstill of the process. Here the tick of the wheel delays the report.
func TestEndedLockBeforeTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := wheel.New(wheel.Config{Tick: time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { w.Stop() })
		const ttl = 5 * time.Second
		slow := paused{idempotency.NewMemory(), func(idempotency.Record) {
			time.Sleep(time.Until(renewal.Until(time.Now(), ttl-w.Tick()).Add(20 * time.Millisecond)))
		}, func(idempotency.Record) error { return nil }}
		var calls atomic.Int32
		l := locktest.StartMemory(t).Locker(t, lock.Config{Wheel: w, TTL: ttl})
		h := wrap(t, l, slow, idempotency.Config{Lock: lock.Options{Fixed: true}}, counted(&calls))
		assert.Equal(t, http.StatusServiceUnavailable, post(h, "k", "body").Code)
		assert.Zero(t, calls.Load())
	})
}

// The files of a form that a handler has parsed are removed.
func TestFilesOfForms(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	t.Setenv("TMP", folder) // on Windows
	h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{}, func(_ http.ResponseWriter, r *http.Request) {
		assert.NoError(t, r.ParseMultipartForm(1))
		files, err := os.ReadDir(folder)
		assert.NoError(t, err)
		assert.Len(t, files, 1)
		panic(http.ErrAbortHandler)
	})
	var body strings.Builder
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("picture", "picture")
	require.NoError(t, err)
	_, err = io.WriteString(file, "a picture")
	require.NoError(t, err)
	require.NoError(t, form.Close())
	require.Panics(t, func() {
		post(h, "k", body.String(), func(r *http.Request) { r.Header.Set("Content-Type", form.FormDataContentType()) })
	})
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, files)
}

// paused is a store of replies, which calls before with each record that is to be stored.
type paused struct {
	idempotency.Replies
	before func(idempotency.Record)
	after  func(idempotency.Record) error
}

func (p paused) Swap(ctx context.Context, key string, next idempotency.Record, keep time.Duration) (idempotency.Record, error) {
	p.before(next)
	previous, err := p.Replies.Swap(ctx, key, next, keep)
	return previous, errors.Join(err, p.after(next))
}

// repeating is a store that repeats each request, as if the first had had no answer.
type repeating struct{ idempotency.Replies }

func (r repeating) Swap(ctx context.Context, key string, next idempotency.Record, keep time.Duration) (idempotency.Record, error) {
	_, err := r.Replies.Swap(ctx, key, next, keep)
	previous, again := r.Replies.Swap(ctx, key, next, keep)
	return previous, errors.Join(err, again)
}

// The record of an attempt itself is no interrupted attempt: a store finds it that repeats a
// request of unknown outcome, and a middleware within another.
func TestOwnAttemptIsNotInterrupted(t *testing.T) {
	var calls, interrupted atomic.Int32
	c := idempotency.Config{Interrupted: counted(&interrupted)}
	l := locktest.New(t, patient)
	replies := repeating{idempotency.NewMemory()}
	h := wrap(t, l, replies, c, wrap(t, l, replies, c, counted(&calls)).ServeHTTP)
	for range 2 {
		w := post(h, "k", "body")
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "1", w.Body.String())
	}
	require.EqualValues(t, 1, calls.Load())
	require.Zero(t, interrupted.Load())
}

// Such a store hides no earlier attempt: the handler does not run twice. An attempt that the store
// began without an answer counts as one.
func TestEarlierAttemptIsNotHidden(t *testing.T) {
	var calls, interrupted atomic.Int32
	c := idempotency.Config{Interrupted: counted(&interrupted)}
	panics := func(http.ResponseWriter, *http.Request) {
		if calls.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
	}
	repeats := wrap(t, locktest.New(t, patient), repeating{idempotency.NewMemory()}, c, panics)
	require.Panics(t, func() { post(repeats, "k", "body") })
	require.Equal(t, http.StatusOK, post(repeats, "k", "body").Code)
	require.Equal(t, [2]int32{1, 1}, [2]int32{calls.Load(), interrupted.Load()})

	lost := lock.ErrUnavailable
	unanswered := paused{idempotency.NewMemory(), func(idempotency.Record) {}, func(idempotency.Record) error { return lost }}
	h := wrap(t, locktest.New(t, patient), unanswered, c, panics)
	require.Equal(t, http.StatusServiceUnavailable, post(h, "k", "body").Code)
	lost = nil
	require.Equal(t, "2", post(h, "k", "body").Body.String())
	require.EqualValues(t, 1, calls.Load())
}

// overtaken is a repeating store whose first answer is late: next has been called by then.
type overtaken struct {
	repeating
	next *func()
}

func (o overtaken) Load(ctx context.Context, key string) (idempotency.Record, error) {
	r, err := o.repeating.Load(ctx, key)
	next := *o.next
	*o.next = func() {}
	next()
	return r, err
}

// Nor does it hide an attempt that began after the record was read, and ended before the lock was
// granted.
func TestAttemptBeforeTheLockIsNotHidden(t *testing.T) {
	var calls, interrupted atomic.Int32
	c := idempotency.Config{Interrupted: counted(&interrupted)}
	var next func()
	h := wrap(t, locktest.New(t, patient), overtaken{repeating{idempotency.NewMemory()}, &next}, c, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusInternalServerError) // is not stored
	})
	next = func() { assert.Equal(t, http.StatusInternalServerError, post(h, "k", "body").Code) }
	require.Equal(t, http.StatusOK, post(h, "k", "body").Code)
	require.Equal(t, [2]int32{1, 1}, [2]int32{calls.Load(), interrupted.Load()})
}

// A process that is paused as it stores its reply, until the lock has another holder, does not
// store it: the fencing token refuses it.
func TestPausedBeforeTheReplyIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, replies := locktest.StartMemory(t), idempotency.NewMemory()
		var calls atomic.Int32
		finish := make(chan struct{})
		pausing := paused{replies, func(next idempotency.Record) {
			if len(next.Reply) > 0 {
				<-finish
			}
		}, func(idempotency.Record) error { return nil }}
		first := wrap(t, memory.Locker(t, lock.Config{}), pausing, idempotency.Config{}, counted(&calls))
		ended := make(chan *httptest.ResponseRecorder)
		go func() { ended <- post(first, "k", "body") }()
		synctest.Wait()
		memory.DeleteAll()
		block := make(chan struct{})
		second := wrap(t, memory.Locker(t, lock.Config{}), replies, idempotency.Config{}, func(w http.ResponseWriter, r *http.Request) {
			<-block
			counted(&calls)(w, r)
		})
		go func() { ended <- post(second, "k", "body") }()
		synctest.Wait()
		close(finish) // beside the second, which is at work
		require.Equal(t, http.StatusServiceUnavailable, (<-ended).Code)
		close(block)
		require.Equal(t, "2", (<-ended).Body.String())
		require.Equal(t, "2", post(first, "k", "body").Body.String())
	})
}

// unread is a store that reads a number of records.
type unread struct {
	idempotency.Replies
	reads atomic.Int32
}

func (u *unread) Load(ctx context.Context, key string) (idempotency.Record, error) {
	if u.reads.Add(-1) < 0 {
		return idempotency.Record{}, lock.ErrUnavailable
	}
	return u.Replies.Load(ctx, key)
}

// A reply whose storing failed, but was carried out, is found by the repeated request. One that
// cannot be stored is not sent. Without the records the handler is not called.
func TestRepliesDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := 0
		unanswered := paused{idempotency.NewMemory(), func(idempotency.Record) {}, func(next idempotency.Record) error {
			if len(next.Reply) > 0 && fails > 0 {
				fails--
				return lock.ErrUnavailable
			}
			return nil
		}}
		var calls atomic.Int32
		h := wrap(t, locktest.New(t, patient), unanswered, idempotency.Config{}, counted(&calls))
		fails = 3
		assert.Equal(t, "1", post(h, "a", "body").Body.String())
		fails = 1000
		w := post(h, "b", "body")
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		assert.True(t, json.Valid(w.Body.Bytes()), "without the reply")
		assert.Equal(t, "2", post(h, "b", "body").Body.String(), "it was stored, though no answer was received")
		assert.EqualValues(t, 2, calls.Load())

		memory := locktest.StartMemory(t)
		h = wrap(t, memory.Locker(t, lock.Config{}), idempotency.NewMemory(), idempotency.Config{}, counted(&calls))
		memory.Disconnect()
		assert.Equal(t, http.StatusServiceUnavailable, post(h, "k", "body").Code)
		memory.Reconnect()
		for reads := range int32(2) {
			replies := &unread{Replies: idempotency.NewMemory()}
			replies.reads.Store(reads)
			h = wrap(t, locktest.New(t, patient), replies, idempotency.Config{Interrupted: counted(&calls)}, counted(&calls))
			assert.Equal(t, http.StatusServiceUnavailable, post(h, "k", "body").Code)
		}
		assert.EqualValues(t, 2, calls.Load())
	})
}

// Records in memory are dropped when their time is over.
func TestMemoryDropsRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replies := idempotency.NewMemory()
		store := func(key string) weak.Pointer[byte] {
			reply := make([]byte, 1<<10)
			_, err := replies.Swap(t.Context(), key, idempotency.Record{Token: 1, Reply: reply}, time.Hour)
			require.NoError(t, err)
			return weak.Make(&reply[0])
		}
		stored := store("a")
		time.Sleep(59 * time.Minute)
		store("b")
		runtime.GC()
		assert.NotNil(t, stored.Value())
		time.Sleep(2 * time.Minute)
		store("c")
		runtime.GC()
		assert.Nil(t, stored.Value())
		runtime.KeepAlive(replies)
	})
}

// finding is a store that has found another record than it has, once it is to store a reply or before.
type finding struct {
	idempotency.Replies
	reply bool
	found func(next idempotency.Record) idempotency.Record
}

func (f finding) Swap(ctx context.Context, key string, next idempotency.Record, keep time.Duration) (idempotency.Record, error) {
	if f.reply == (len(next.Reply) > 0) {
		return f.found(next), nil
	}
	return f.Replies.Swap(ctx, key, next, keep)
}

// An attempt that finds a later one does not call the handler, or send its reply. A damaged reply is
// reported. The log has the causes.
func TestOtherRecords(t *testing.T) {
	later := func(next idempotency.Record) idempotency.Record {
		return idempotency.Record{Token: next.Token + 1, Fingerprint: next.Fingerprint}
	}
	stored := func(reply string) func(idempotency.Record) idempotency.Record {
		return func(next idempotency.Record) idempotency.Record {
			return idempotency.Record{Token: next.Token - 1, Fingerprint: next.Fingerprint, Reply: []byte(reply)}
		}
	}
	for name, test := range map[string]struct {
		finding
		calls, want int
		log         string
	}{
		"later, at the begin": {finding{found: later}, 0, http.StatusServiceUnavailable, lock.ErrLost.Error()},
		"later, at the end":   {finding{found: later, reply: true}, 1, http.StatusServiceUnavailable, lock.ErrLost.Error()},
		"no JSON":             {finding{found: stored("reply")}, 0, http.StatusInternalServerError, "damaged"},
		"no text":             {finding{found: stored(`{"Status": 200, "Text": 5}`)}, 0, http.StatusInternalServerError, "damaged"},
		"no status":           {finding{found: stored(`{"Status": 199}`)}, 0, http.StatusInternalServerError, "damaged"},
		"a long status":       {finding{found: stored(`{"Status": 1000}`)}, 0, http.StatusInternalServerError, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				var calls atomic.Int32
				test.Replies = idempotency.NewMemory()
				c := idempotency.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
				w := post(wrap(t, locktest.New(t, patient), test.finding, c, counted(&calls)), "k", "body")
				assert.Equal(t, test.want, w.Code)
				assert.True(t, json.Valid(w.Body.Bytes()), "one document")
				assert.EqualValues(t, test.calls, calls.Load())
				synctest.Wait()
				assert.Contains(t, log.String(), test.log)
			})
		})
	}
}

// A record yields to one of a later attempt at the same request, until it has a reply.
func TestYields(t *testing.T) {
	next := idempotency.Record{Token: 2, Fingerprint: []byte("a")}
	for r, want := range map[*idempotency.Record]bool{
		{}:                                   true,
		{Token: 1, Fingerprint: []byte("a")}: true,
		{Token: 2, Fingerprint: []byte("a")}: true,
		{Token: 3, Fingerprint: []byte("a")}: false,
		{Token: 1, Fingerprint: []byte("b")}: false,
		{Token: 1, Fingerprint: []byte("a"), Reply: []byte("reply")}: false,
	} {
		assert.Equal(t, want, r.Yields(next), "%+v", r)
	}
}

// A reply of a status without a body has none, and no status is invented.
func TestStatusOfAReply(t *testing.T) {
	for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
		h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{}, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, err := io.WriteString(w, "x")
			assert.ErrorIs(t, err, http.ErrBodyNotAllowed)
		})
		for range 2 {
			w := post(h, "k", "body")
			assert.Equal(t, status, w.Code)
			assert.Empty(t, w.Body.String())
			assert.NotContains(t, w.Header(), "Content-Length")
		}
	}
	for _, status := range []int{99, 1000} {
		h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), idempotency.Config{}, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
		})
		assert.PanicsWithValue(t, fmt.Sprint("idempotency: invalid status code ", status), func() { post(h, "k", "body") })
	}
}

// The same key of another account is another key, and a reply is kept for its time.
func TestScopeAndKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		c := idempotency.Config{Keep: time.Hour, Scope: func(r *http.Request) string { return r.Header.Get("Account") }}
		h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), c, counted(&calls))
		as := func(account string) func(*http.Request) {
			return func(r *http.Request) { r.Header.Set("Account", account) }
		}
		assert.Equal(t, "1", post(h, "k", "body", as("ann")).Body.String())
		assert.Equal(t, "2", post(h, "k", "body", as("bob")).Body.String())
		assert.Equal(t, "3", post(h, "nk", "body", as("an")).Body.String(), "the same text, taken together")
		time.Sleep(59 * time.Minute)
		assert.Equal(t, "1", post(h, "k", "body", as("ann")).Body.String())
		time.Sleep(time.Minute)
		assert.Equal(t, "4", post(h, "k", "body", as("ann")).Body.String())
	})
}

// A scope may be read from the body. The handler gets the same body, and the same form.
func TestScopeInTheBody(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	t.Setenv("TMP", folder) // on Windows
	var multi strings.Builder
	form := multipart.NewWriter(&multi)
	require.NoError(t, form.WriteField("account", "ann"))
	file, err := form.CreateFormFile("picture", "picture")
	require.NoError(t, err)
	_, err = io.WriteString(file, "a picture")
	require.NoError(t, err)
	require.NoError(t, form.Close())
	for _, test := range []struct{ kind, body string }{
		{"application/x-www-form-urlencoded", "account=ann&n=1"},
		{form.FormDataContentType(), multi.String()},
	} {
		var scope, account, body string
		c := idempotency.Config{Scope: func(r *http.Request) string {
			_ = r.ParseMultipartForm(1)
			scope = r.FormValue("account")
			return scope
		}}
		h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), c, func(_ http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			r.Body = io.NopCloser(bytes.NewReader(text))
			account, body = r.FormValue("account"), string(text)
		})
		post(h, "k", test.body, func(r *http.Request) { r.Header.Set("Content-Type", test.kind) })
		assert.Equal(t, "ann", scope)
		assert.Equal(t, "ann", account)
		assert.Equal(t, test.body, body)
		files, err := os.ReadDir(folder)
		require.NoError(t, err)
		require.Empty(t, files)
	}
}

// Without fencing tokens a paused process could store its reply: the middleware refuses.
func TestLocksWithoutTokens(t *testing.T) {
	server := locktest.Start(t)
	store, err := redisstore.New(server.Client(t), redisstore.Config{Format: redisstore.FormatPlain})
	require.NoError(t, err)
	defer store.Close()
	l, err := lock.New(store, patient)
	require.NoError(t, err)
	defer l.Close()
	var calls atomic.Int32
	h := wrap(t, l, idempotency.NewMemory(), idempotency.Config{}, counted(&calls))
	require.Equal(t, http.StatusInternalServerError, post(h, "k", "body").Code)
	require.Zero(t, calls.Load())
}

// unwritable is the handler of a logger that panics, as one whose disk is full.
type unwritable struct{ slog.Handler }

func (unwritable) Enabled(context.Context, slog.Level) bool  { return true }
func (unwritable) Handle(context.Context, slog.Record) error { panic("the disk is full") }

// A logger that panics does not prevent that a reply is stored: the effect has happened.
func TestLoggerThatPanics(t *testing.T) {
	var calls atomic.Int32
	c := idempotency.Config{MaxReply: 1, Logger: slog.New(unwritable{slog.DiscardHandler})}
	h := wrap(t, locktest.New(t, patient), idempotency.NewMemory(), c, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "reply ", calls.Add(1))
	})
	for range 2 {
		require.Equal(t, http.StatusInternalServerError, post(h, "k", "body").Code)
	}
	require.EqualValues(t, 1, calls.Load(), "broken promise: the effect happened twice")
}

// leaving is a store whose request is applied when the client gives up.
type leaving struct {
	idempotency.Replies
	leave func()
}

func (l leaving) Swap(ctx context.Context, key string, next idempotency.Record, keep time.Duration) (idempotency.Record, error) {
	previous, err := l.Replies.Swap(ctx, key, next, keep)
	l.leave()
	return previous, errors.Join(err, ctx.Err())
}

// A client that gives up while the begin of the attempt is stored interrupts no attempt.
func TestClientLeavesBeforeTheHandler(t *testing.T) {
	var calls, interrupted atomic.Int32
	ctx, leave := context.WithCancel(t.Context())
	c := idempotency.Config{Interrupted: counted(&interrupted)}
	h := wrap(t, locktest.New(t, patient), leaving{idempotency.NewMemory(), leave}, c, counted(&calls))
	post(h, "k", "body", func(r *http.Request) { *r = *r.WithContext(ctx) })
	require.Equal(t, "1", post(h, "k", "body").Body.String())
	require.EqualValues(t, 1, calls.Load())
	require.Zero(t, interrupted.Load())
}
