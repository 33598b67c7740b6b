package delayqueue

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

//go:embed *.lua
var files embed.FS

var (
	putScript    = redisstore.NewScript(files, "put.lua")
	claimScript  = redisstore.NewScript(files, "claim.lua")
	settleScript = redisstore.NewScript(files, "settle.lua")
	renewScript  = redisstore.NewScript(files, "renew.lua")
	moveScript   = redisstore.NewScript(files, "move.lua")
	cancelScript = redisstore.NewScript(files, "cancel.lua")
	reviveScript = redisstore.NewScript(files, "revive.lua")
	getScript    = redisstore.NewScript(files, "get.lua")
	listScript   = redisstore.NewScript(files, "list.lua")
	statsScript  = redisstore.NewScript(files, "stats.lua")
	kindsScript  = redisstore.NewScript(files, "kinds.lua")
)

// The bounds of one run of a script.
const (
	// batch is the most messages that a script touches: it blocks the server for less
	// than 0.4 ms. Twice as many take twice as long, and save a tenth.
	batch = 32
	// batchBytes is the most payload in a script's request or reply, beside one message.
	batchBytes = 1 << 20
)

// once runs a script once, for at most [Config.RequestTimeout].
func (q *Queue) once(ctx context.Context, sc redisstore.Script, keys []string, args ...any) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, q.config.RequestTimeout)
	defer cancel()
	publish, err := q.store.PublishCommand(ctx)
	if err != nil {
		return nil, errors.Join(err, lock.ErrNotDone)
	}
	reply, err := q.store.Run(ctx, sc, keys, append([]any{publish}, args...)...) // args are needed again
	switch {
	case errors.Is(err, redisstore.ErrWrongType):
		return nil, q.replaced(ctx, err)
	case err != nil:
		return nil, err
	}
	list, ok := reply.([]any)
	if !ok {
		list = []any{reply}
	}
	return list, nil
}

// passing reports whether repeating the request may help.
func passing(err error) bool { return errors.Is(err, ErrUnavailable) }

// undone reports whether repeating may help, and the request was not carried out.
func undone(err error) bool { return passing(err) && errors.Is(err, lock.ErrNotDone) }

// ask repeats a script until it gets a reply, as long as again allows it for the error: passing for
// an idempotent script. It lasts for [Config.RetryFor] at most, or one [Config.RequestTimeout] if
// that is longer.
func (q *Queue) ask(ctx context.Context, again func(error) bool, sc redisstore.Script, args ...any) ([]any, error) {
	if err := q.closed.Err(); err != nil {
		return nil, ErrClosed
	}
	repeats := func(err error) bool { return q.config.RetryFor >= 0 && again(err) }
	var reply []any
	err := backoff.Retry(ctx, q.closed, max(q.config.RetryFor, q.config.RequestTimeout), repeats, func(ctx context.Context) (err error) {
		reply, err = q.once(ctx, sc, q.keys, args...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("delayqueue: %q: %w", q.name, err)
	}
	return reply, nil
}
