// Package redisreplies stores the replies of package idempotency on Redis, beside the locks:
//
//	store, err := redisstore.Open(url, redisstore.Config{})
//	locker, err := lock.New(store, lock.Config{})
//	once, err := idempotency.New(locker, redisreplies.New(store, "idempotency:"), idempotency.Config{})
//
// Each record is a hash with an expiry, in a key that begins with leasewheel_reply: and the prefix.
// "leasewheel acl --replies 'idempotency:*'" prints the rights to them and to the locks, whose
// names begin with idempotency:. Redis that evicts keys,
// or a failover that loses the last writes, loses replies as well: then the handler runs again.
// Replies are stored as they are, with the cookies and secrets that they have.
package redisreplies

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/leasewheel/leasewheel/lock/idempotency"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

//go:embed *.lua
var files embed.FS

var (
	loadScript = redisstore.NewScript(files, "load.lua")
	swapScript = redisstore.NewScript(files, "swap.lua")
)

// New returns replies on the server of s. Services that share it have different prefixes. It is
// not the prefix of the store, which is for locks.
func New(s *redisstore.Store, prefix string) idempotency.Replies { return &replies{s, prefix} }

type replies struct {
	store  *redisstore.Store
	prefix string
}

// keysOf returns the key of a record: never that of its lock, with any prefix.
func (r *replies) keysOf(key string) []string { return []string{"leasewheel_reply:" + r.prefix + key} }

func (r *replies) Load(ctx context.Context, key string) (idempotency.Record, error) {
	return recordOf(r.store.Run(ctx, loadScript, r.keysOf(key)))
}

func (r *replies) Swap(ctx context.Context, key string, next idempotency.Record, keep time.Duration) (idempotency.Record, error) {
	return recordOf(r.store.Run(ctx, swapScript, r.keysOf(key), next.Token, next.Fingerprint, next.Reply, max(keep.Milliseconds(), 1)))
}

var errForeign = errors.New("redisreplies: the key has no record")

// recordOf returns the record of a script's reply.
func recordOf(answer any, err error) (idempotency.Record, error) {
	if err != nil {
		return idempotency.Record{}, fmt.Errorf("redisreplies: %w", err)
	}
	list, _ := answer.([]any)
	if len(list) != 3 {
		return idempotency.Record{}, errForeign
	}
	var texts [3]string
	for i, item := range list {
		text, ok := item.(string)
		if !ok {
			return idempotency.Record{}, errForeign
		}
		texts[i] = text
	}
	token, err := strconv.ParseInt(texts[0], 10, 64)
	if err != nil {
		return idempotency.Record{}, errForeign
	}
	return idempotency.Record{Token: token, Fingerprint: []byte(texts[1]), Reply: []byte(texts[2])}, nil
}
