package redisreplies_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/idempotency"
	"github.com/leasewheel/leasewheel/lock/idempotency/redisreplies"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Both stores keep a record until another one may replace it.
func TestSwap(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	store, err := redisstore.New(server.Client(t), redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	for name, replies := range map[string]idempotency.Replies{
		"Memory": idempotency.NewMemory(),
		"Redis":  redisreplies.New(store, "replies:"),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := []byte("\x00\xff a"), []byte("b")
			begun := idempotency.Record{Token: 5, Fingerprint: a}
			done := idempotency.Record{Token: 5, Fingerprint: a, Reply: []byte("\xff\x00\r\nreply")}
			for i, step := range []struct {
				next     idempotency.Record
				replaces bool
			}{
				{begun, true},
				{idempotency.Record{Token: 4, Fingerprint: a}, false},
				{idempotency.Record{Token: 4, Fingerprint: a, Reply: []byte("late")}, false},
				{idempotency.Record{Token: 6, Fingerprint: b}, false},
				{begun, true},
				{done, true},
				{done, false},
				{idempotency.Record{Token: 7, Fingerprint: a}, false},
				{idempotency.Record{Token: 7, Fingerprint: a, Reply: []byte("other")}, false},
			} {
				before, err := replies.Load(t.Context(), "key")
				require.NoError(t, err)
				require.Equal(t, step.replaces, before.Yields(step.next), "step %d", i)
				previous, err := replies.Swap(t.Context(), "key", step.next, time.Hour)
				require.NoError(t, err)
				equal(t, before, previous)
				after, err := replies.Load(t.Context(), "key")
				require.NoError(t, err)
				if step.replaces {
					before = step.next
				}
				equal(t, before, after)
			}
		})
	}
}

func equal(t *testing.T, want, got idempotency.Record) {
	t.Helper()
	require.True(t, want.Token == got.Token && bytes.Equal(want.Fingerprint, got.Fingerprint) && bytes.Equal(want.Reply, got.Reply), "%v, not %v", got, want)
}

// A server that is out of memory takes the reply of a handler that has run, and no further attempt.
func TestReplyOnAServerOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	store, err := redisstore.New(server.Client(t), redisstore.Config{})
	require.NoError(t, err)
	defer store.Close()
	replies := redisreplies.New(store, "replies:")
	begun := idempotency.Record{Token: 5, Fingerprint: []byte("a")}
	_, err = replies.Swap(t.Context(), "key", begun, time.Hour)
	require.NoError(t, err)
	require.NoError(t, server.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err())

	for _, key := range []string{"key", "other"} {
		_, err = replies.Swap(t.Context(), key, idempotency.Record{Token: 6, Fingerprint: begun.Fingerprint}, time.Hour)
		require.ErrorIs(t, err, redisstore.ErrOutOfMemory)
	}
	done := begun
	done.Reply = []byte("reply")
	_, err = replies.Swap(t.Context(), "key", done, time.Hour)
	require.NoError(t, err)
	after, err := replies.Load(t.Context(), "key")
	require.NoError(t, err)
	equal(t, done, after)
}

// Random steps have the same results in memory and on Redis, with tokens as large as they become.
func TestSameAsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		memory, redis := idempotency.NewMemory(), redisreplies.New(server.Store(t), "replies:")
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		const large = 1<<53 - 4
		for i := range 1000 {
			next := idempotency.Record{Token: large + random.Int64N(4), Fingerprint: []byte{byte(random.IntN(2))}}
			if random.IntN(3) == 0 {
				next.Reply = []byte{byte(i)}
			}
			key := fmt.Sprint(i / 10)
			want, err := memory.Swap(t.Context(), key, next, time.Hour)
			require.NoError(t, err)
			got, err := redis.Swap(t.Context(), key, next, time.Hour)
			require.NoError(t, err)
			require.True(t, want.Token == got.Token && bytes.Equal(want.Fingerprint, got.Fingerprint) && bytes.Equal(want.Reply, got.Reply), "seed %d, step %d: %v, not %v", seed, i, got, want)
		}
	})
}

// A record expires after its time, and what is no record is an error that leaves it alone.
func TestRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		replies := redisreplies.New(server.Store(t), "replies:")
		_, err := replies.Swap(t.Context(), "key", idempotency.Record{Token: 1}, time.Hour)
		require.NoError(t, err)
		client := server.Client(t)
		require.Equal(t, time.Hour, client.PTTL(t.Context(), "leasewheel_reply:replies:key").Val())
		time.Sleep(time.Hour)
		r, err := replies.Load(t.Context(), "key")
		require.NoError(t, err)
		require.Zero(t, r.Token)

		require.NoError(t, client.Set(t.Context(), "leasewheel_reply:replies:text", "x", 0).Err())
		require.NoError(t, client.HSet(t.Context(), "leasewheel_reply:replies:hash", "token", "x").Err())
		for _, key := range []string{"text", "hash"} {
			_, err = replies.Load(t.Context(), key)
			require.Error(t, err)
			_, err = replies.Swap(t.Context(), key, idempotency.Record{Token: 1}, time.Hour)
			require.Error(t, err)
		}
		require.Equal(t, "x", client.HGet(t.Context(), "leasewheel_reply:replies:hash", "token").Val())
		server.Disconnect()
		_, err = replies.Load(t.Context(), "key")
		require.ErrorIs(t, err, lock.ErrUnavailable)
		server.Reconnect()
	})
}

// A record never has the key of its lock: after an attempt without a reply the handler runs again,
// also with the prefix that the locks' names have.
func TestRecordIsNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := locktest.Start(t).Store(t)
		locker, err := lock.New(store, lock.Config{})
		require.NoError(t, err)
		defer locker.Close()
		once, err := idempotency.New(locker, redisreplies.New(store, "idempotency:"), idempotency.Config{})
		require.NoError(t, err)
		status := http.StatusServiceUnavailable
		h := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		for _, status = range []int{http.StatusServiceUnavailable, http.StatusCreated} {
			r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("two books"))
			r.Header.Set("Idempotency-Key", `"8e03978e"`)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, status, w.Code)
		}
	})
}

// Locks and replies on one server.
func ExampleNew() {
	var t locktest.Scope
	defer t.End()
	store := locktest.Start(&t).Store(&t) // a program: redisstore.Open
	locker, err := lock.New(store, lock.Config{})
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	once, err := idempotency.New(locker, redisreplies.New(store, "idempotency:"), idempotency.Config{})
	if err != nil {
		panic(err)
	}
	orders := 0
	h := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		fmt.Fprint(w, "order ", orders)
	}))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("two books"))
		r.Header.Set("Idempotency-Key", `"8e03978e"`)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Body)
	}
	// Output:
	// order 1
	// order 1
}
