package transport

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
)

// A server that has refused a shared run gets the next one after a minute.
func TestSharedRunsComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		script := &Script{Text: lua.File("acquire.lua"), Granting: true, Common: 1, Own: 1}
		var batch []*request
		for n := range 5 {
			batch = append(batch, &request{ctx: ctx, Call: &Call{Script: script, Keys: []any{fmt.Sprint("lock ", n)}, Args: []any{"common", n}}})
		}
		client := redis.NewClient(&redis.Options{ // which looks no name up: the bubble has no network
			Addr: "127.0.0.1:1", MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		transport := New(client, 0, 0)
		defer transport.single.Close()
		assert.Len(t, transport.share(batch), 1)
		again := transport.settleRefused(batch, fault.Classify(fault.Refusal("CROSSSLOT keys are not in one slot")))
		assert.Equal(t, batch, again)
		assert.Equal(t, batch, transport.settleRefused(batch, notSentError{fault.ErrPanicked}))
		assert.Len(t, transport.share(batch), len(batch))
		time.Sleep(time.Minute - time.Nanosecond)
		assert.Len(t, transport.share(batch), len(batch))
		time.Sleep(time.Nanosecond)
		assert.Len(t, transport.share(batch), 1)

		cluster := New(new(redis.ClusterClient), 0, 0)
		assert.Len(t, cluster.share(batch), len(batch), "their locks are in several slots")
	})
}
