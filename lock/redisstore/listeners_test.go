package redisstore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
)

// A number of subscribers that no server has is some: its waiters live, and none of them are
// other clients, to which a release would leave the lock.
func TestSubscribersThatNoServerHas(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	for _, test := range []struct {
		all, ours                int64 // as the server reports
		listening, oursListening int64
		othersListening          bool
	}{
		{all: 0, ours: 0},
		{all: 8, ours: 8, listening: 8, oursListening: 8},
		{all: 9, ours: 8, listening: 9, oursListening: 8, othersListening: true},
		{all: 1, ours: 0, listening: 1, othersListening: true},
		{all: 1048576, ours: 8, listening: 1048576, oursListening: 8, othersListening: true},
		{all: 752484855, ours: 744604071, listening: 1, oursListening: 1},
		{all: 744604071, ours: 752484855, listening: 1, oursListening: 1},
		{all: 752484855, ours: 8, listening: 1, oursListening: 8},
		{all: -5, ours: -6, listening: 1, oursListening: 1},
	} {
		pretended := fmt.Sprintf(`
			local counts = {all = %d, ours = %d}
			local redis = {pcall = function(command, _, ...)
				local reply = {}
				for _, channel in ipairs({...}) do
					table.insert(reply, channel)
					table.insert(reply, counts[channel])
				end
				return reply
			end}
		`, test.all, test.ours)
		for _, publish := range []string{publishPlain, publishSharded} {
			reply, err := client.Eval(t.Context(), pretended+lua.File("listeners.lua")().Source+`
				local publish = ARGV[1]
				return {listening(publish, 'all'), oursListening(publish, 'ours'), othersListening(publish, 'all', 'ours')}
			`, nil, publish).Slice()
			require.NoError(t, err)
			var others any
			if test.othersListening {
				others = int64(1)
			}
			assert.Equal(t, []any{test.listening, test.oursListening, others}, reply, "%s: %+v", publish, test)
		}
	}
}

// Subscribers of either kind of pub/sub count, as far as the way of publishing reaches them: one
// that is subscribed by both kinds counts once if releases are published by both.
func TestSubscribersOfEitherKind(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	for _, test := range []struct {
		publish                  string
		sharded, shardedOurs     int64
		plain, plainOurs         int64
		listening, oursListening int64
		othersListening          bool
	}{
		{publish: publishPlain, sharded: 9, plain: 2, plainOurs: 2, listening: 2, oursListening: 2},
		{publish: publishSharded, sharded: 3, shardedOurs: 2, listening: 3, oursListening: 2, othersListening: true},
		{publish: publishSharded, sharded: 2, shardedOurs: 2, plain: 1, listening: 2, oursListening: 2},
		{publish: publishAuto, sharded: 3, shardedOurs: 2, listening: 3, oursListening: 2, othersListening: true},
		{publish: publishAuto, sharded: 2, shardedOurs: 2, plain: 1, listening: 3, oursListening: 2, othersListening: true},
		{publish: publishAuto, sharded: 2, shardedOurs: 2, plain: 1, plainOurs: 1, listening: 3, oursListening: 2},
		{publish: publishBoth, sharded: 3, shardedOurs: 2, plain: 2, listening: 3, oursListening: 2, othersListening: true},
		{publish: publishBoth, sharded: 2, shardedOurs: 2, plain: 3, listening: 3, oursListening: 2, othersListening: true},
		{publish: publishBoth, sharded: 2, shardedOurs: 2, plain: 2, listening: 2, oursListening: 2},
	} {
		pretended := fmt.Sprintf(`
			local counts = {shardnumsub = {all = %d, ours = %d}, numsub = {all = %d, ours = %d}}
			local redis = {pcall = function(_, count, first, second)
				return {first, counts[count][first], second, counts[count][second]}
			end}
		`, test.sharded, test.shardedOurs, test.plain, test.plainOurs)
		reply, err := client.Eval(t.Context(), pretended+lua.File("listeners.lua")().Source+`
			local publish = ARGV[1]
			return {listening(publish, 'all'), oursListening(publish, 'ours'), othersListening(publish, 'all', 'ours') and 1 or 0}
		`, nil, test.publish).Int64Slice()
		require.NoError(t, err)
		others := map[bool]int64{true: 1}[test.othersListening]
		assert.Equal(t, []int64{test.listening, test.oursListening, others}, reply, "%+v", test)
	}
}
