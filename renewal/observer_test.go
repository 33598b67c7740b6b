package renewal

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// failingHandler is a log whose Handle does not return.
type failingHandler struct {
	slog.Handler
	fail func()
}

func (failingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h failingHandler) Handle(context.Context, slog.Record) error {
	h.fail()
	return nil
}

// Functions of users that never return stop no renewal, no loss and no Close: those of the
// observer, those of other leases, and the logger.
func TestBlockedFunctionsStopNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		c := Config{
			Logger: slog.New(failingHandler{slog.DiscardHandler, func() { <-block }}),
			Observer: &Observer{
				Batch: func(Batch) { <-block },
				Lost:  func(*Lease, *LostError) { <-block },
				Jump:  func(Jump) { <-block },
			},
		}
		s := newStore()
		dog, err := New(s, c)
		require.NoError(t, err)
		b := &bench{t, s, dog}
		defer b.close()
		defer close(block)

		blocked := b.grant(Spec{Key: "n/blocked", MaxHold: time.Second, OnLost: func(error) { <-block }, Alive: func() bool { <-block; return true }})
		var held []*Lease
		for i := range 3 * DefaultBatchSize {
			held = append(held, b.grant(Spec{Key: fmt.Sprint("n/", i)}))
		}
		b.lost(blocked, MaxHold)
		time.Sleep(5 * time.Minute)
		b.allHeld(held)

		s.node("n", func(n *node) { n.mute = true })
		time.Sleep(tick) // what is in flight is answered
		slices.SortFunc(held, func(x, y *Lease) int { return x.Until().Compare(y.Until()) })
		for _, l := range held {
			until := l.Until()
			b.lost(l, Unreachable)
			b.inTime(until)
		}

		b.grant(Spec{Key: "m/k", OnLost: func(error) { <-block }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		closed := make(chan error, 1)
		go func() { closed <- dog.Close(ctx) }()
		select {
		case err := <-closed:
			require.ErrorIs(b, err, context.DeadlineExceeded)
		case <-time.After(time.Minute):
			require.Fail(b, "Close does not end with its context")
		}
	})
}

// A logger that panics, ends its goroutine or blocks costs the observer no report, and does not
// end the process.
func TestLoggerThatFails(t *testing.T) {
	var block chan struct{}
	for name, fail := range map[string]func(){
		"panics": func() { panic("the log") },
		"exits":  runtime.Goexit,
		"blocks": func() { <-block },
	} {
		t.Run(name, func(t *testing.T) {
			var jumps atomic.Int64
			inClocks(t, Config{
				Logger: slog.New(failingHandler{slog.DiscardHandler, fail}),
				Observer: &Observer{
					Batch: func(Batch) { panic("the observer") },
					Jump:  func(Jump) { jumps.Add(1) },
				},
			}, func(b *bench, k *clocks) {
				block = make(chan struct{})
				defer close(block)
				l := b.grant(Spec{Key: "k"})
				k.step(time.Second)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.True(b, l.Valid())
				require.EqualValues(b, 1, jumps.Load())
				require.Positive(b, b.dog.Stats().Panics)
			})
		})
	}
}

// A loss is reported in time to every holder, also if the context of another lease is of a
// type whose methods block.
func TestBlockedContextStopsNoLoss(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		block := make(chan struct{})
		defer close(block)
		parent, cancel := context.WithCancel(b.Context())
		defer cancel()
		own := &blockingContext{Context: parent, block: block}
		a := b.grant(Spec{Key: "a", Context: own})
		l := b.grant(Spec{Key: "b"})
		a.Context()
		l.Context()
		own.blocks.Store(true)
		b.node("", func(n *node) { n.mute = true })
		until := l.Until()
		_, err := lostIn(l, time.Hour)
		require.NoError(b, err)
		b.inTime(until)
		require.ErrorIs(b, a.Err(), ErrLost)
	})
}

// blockingContext is a context whose methods block from some time on.
type blockingContext struct {
	context.Context
	blocks atomic.Bool
	block  chan struct{}
}

func (c *blockingContext) Value(key any) any {
	if c.blocks.Load() {
		<-c.block
	}
	return c.Context.Value(key)
}
