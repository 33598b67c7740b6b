package locktest_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// A scope ends what it started in reverse order, and panics where a test would fail.
func TestScope(t *testing.T) {
	var scope locktest.Scope
	var ended []int
	scope.Cleanup(func() { ended = append(ended, 1) })
	scope.Cleanup(func() {
		ended = append(ended, 2)
		scope.Cleanup(func() { ended = append(ended, 3) })
	})
	scope.End()
	scope.End()
	require.Equal(t, []int{2, 3, 1}, ended)
	defer func() {
		assert.Contains(t, recover(), "TTL 1ns is out of range")
		scope.End()
	}()
	locktest.New(&scope, lock.Config{TTL: 1})
}

func ExampleScope() {
	var scope locktest.Scope
	defer scope.End()
	locker := locktest.New(&scope, lock.Config{})
	err := locker.Mutex("orders:42").Do(context.Background(), func(context.Context) error {
		fmt.Println("it holds the lock, without a server")
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: it holds the lock, without a server
}

// A server that is restarted with its data has the entries of its streams, and no key of a kind that
// cannot be saved.
func TestRestartWithOtherKinds(t *testing.T) {
	server := locktest.Start(t)
	client := server.Client(t)
	add := &redis.XAddArgs{Stream: "stream", ID: "5-1", Values: []string{"field", "value"}}
	require.NoError(t, client.XAdd(t.Context(), add).Err())
	require.NoError(t, client.PFAdd(t.Context(), "visitors", "a").Err())
	server.Restart(server.Save())
	entries, err := server.Client(t).XRange(t.Context(), "stream", "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.Equal(t, "5-1", entries[0].ID)
	assert.Equal(t, map[string]any{"field": "value"}, entries[0].Values)
	assert.Zero(t, server.Client(t).Exists(t.Context(), "visitors").Val())
}

// A connection may be closed, and another dialled, while the server writes a reply that
// is not read.
func TestCloseWithAReplyUnread(t *testing.T) {
	dial := locktest.Start(t).Client(t).Options().Dialer
	conn, err := dial(t.Context(), "", "")
	require.NoError(t, err)
	_, err = conn.Write([]byte("*3\r\n$4\r\nEVAL\r\n$31\r\nreturn string.rep('x', 1000000)\r\n$1\r\n0\r\n"))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1)) // the reply has begun
	require.NoError(t, err)
	dialled := make(chan error, 1)
	go func() {
		other, err := dial(t.Context(), "", "")
		if err == nil {
			err = other.Close()
		}
		dialled <- err
	}()
	require.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		return len(dialled) == 1 || bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*Miniredis).Dial("))
	}, time.Minute, time.Millisecond, "the other dial waits for the server, or is done")
	require.NoError(t, conn.Close())
	require.NoError(t, <-dialled)
}
