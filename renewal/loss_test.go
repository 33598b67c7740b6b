package renewal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/wheel"
)

var errRefused = errors.New("connection refused")

// A cause that does not exist neither ends a lease nor locks the watchdog.
func TestLossWithoutACause(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k"})
		for _, cause := range []Cause{0, causes, math.MaxUint8} {
			require.PanicsWithValue(b, fmt.Sprintf("renewal: Lose: there is no %v", cause), func() { l.Lose(cause, nil) })
		}
		time.Sleep(time.Hour)
		require.NoError(b, l.Err())
		require.NoError(b, l.Stop(b.Context()))
	})
}

func TestLossIsReportedAtUntil(t *testing.T) {
	for name, trouble := range map[string]func(*node){
		"the store is mute":                      func(n *node) { n.mute = true },
		"its replies are lost":                   func(n *node) { n.noReply = true },
		"it refuses":                             func(n *node) { n.refuse = errRefused },
		"a renewal is in flight":                 func(n *node) { n.before, n.deaf = time.Minute, true },
		"a renewal is in flight, and has worked": func(n *node) { n.after, n.deaf = time.Minute, true },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(b *bench) {
				b.node("", trouble)
				told := make(chan error, 2)
				l := b.grant(Spec{Key: "k", OnLost: func(err error) { told <- err }})
				ctx := l.Context()
				until := l.Until()
				time.Sleep(time.Until(until) - 1)
				require.True(b, l.Valid())
				require.NoError(b, l.Err())
				time.Sleep(time.Nanosecond)
				require.False(b, l.Valid(), "from until on, told or not")

				lost := b.lost(l, Unreachable)
				b.inTime(until)
				<-ctx.Done()
				b.inTime(until)
				require.Equal(b, error(lost), context.Cause(ctx))
				require.Equal(b, error(lost), <-told)
				b.inTime(until)
				require.NoError(b, l.Stop(context.WithoutCancel(b.Context())))
				b.forbid(l.Owner())

				time.Sleep(time.Hour)
				require.Equal(b, error(lost), l.Err(), "a lost lease never comes back")
				require.Equal(b, until, l.Until())
				require.Empty(b, told, "told twice")
				require.EqualValues(b, 1, b.dog.Stats().Lost[Unreachable])
			})
		})
	}
}

// The error behind the loss is that of the last renewal.
func TestLossHasTheErrorOfTheLastRenewal(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.refuse = errRefused })
		l := b.grant(Spec{Key: "k"})
		lost := b.lost(l, Unreachable)
		require.ErrorIs(b, lost, errRefused)
		require.Equal(b, `renewal: lease "k" lost: store unreachable: connection refused`, lost.Error())

		b.node("", func(n *node) { *n = node{mute: true} })
		lost = b.lost(b.grant(Spec{Key: "l", Alive: func() bool { return true }}), Unreachable)
		require.ErrorIs(b, lost, context.DeadlineExceeded)

		b.node("", func(n *node) { *n = node{before: time.Minute, deaf: true} })
		lost = b.lost(b.grant(Spec{Key: "m"}), Unreachable)
		require.ErrorIs(b, lost, context.DeadlineExceeded, "while the request hangs")
		time.Sleep(2 * time.Minute)
	})
}

// A lease that waits for a renewer that has not named its group is lost by no fault of the store or
// of its holder.
func TestLossWhileGroupHangs(t *testing.T) {
	for name, alive := range map[string]func() bool{"without": nil, "with": func() bool { return true }} {
		t.Run(name+" a liveness function", func(t *testing.T) {
			inBubble(t, Config{}, func(b *bench) {
				l := b.grant(Spec{Key: "k", Alive: alive})
				open := b.shut()
				b.lost(l, Expired)
				open()
			})
		})
	}
}

// A liveness function that is called shortly before the lease's end is not why it was not renewed.
func TestLossWhileAliveHasJustBeenCalled(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.refuse = errRefused })
		end := time.Now().Add(30 * time.Second)
		late, hang := make(chan time.Time, 1), make(chan struct{})
		defer close(hang)
		l := b.grant(Spec{Key: "k", Alive: func() bool {
			if time.Until(end) < 3*time.Second {
				late <- time.Now()
				<-hang
			}
			return true
		}})
		lost := b.lost(l, Unreachable)
		require.ErrorIs(b, lost, errRefused)
		require.Len(b, late, 1)
	})
}

// Each lease of a request that failed has its own error, not that of a neighbour.
func TestErrorIsTheLeasesOwn(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		wrong, other := errors.New("wrong type"), errors.New("out of memory")
		b.node("", func(n *node) { n.bad = map[string]error{"k1": wrong, "k2": nil, "k3": other, "k4": nil} })
		open := b.shut()
		leases := b.grantMany(6, "k", atOnce)
		time.Sleep(11 * time.Second)
		b.node("", func(n *node) { n.after = time.Second })
		open()
		time.Sleep(time.Second * 3 / 2) // the first request is answered, the next ones are not
		b.dog.mu.Lock()
		defer b.dog.mu.Unlock()
		for i, want := range []error{nil, wrong, errNoAnswer, other, errNoAnswer, nil} {
			var got error
			if f := leases[i].fault; f != nil {
				got = f.err
			}
			require.Equal(b, want, got, "of %s", leases[i].Key())
		}
	})
}

// A reply may come between until and the wheel's next tick and report a renewal. The
// lease is lost nevertheless.
func TestReplyJustAfterUntil(t *testing.T) {
	inBubble(t, Config{RequestTimeout: time.Minute}, func(b *bench) {
		const ttl = 10 * time.Second
		b.node("", func(n *node) { n.refuse = errRefused })
		l := b.grant(Spec{Key: "k", TTL: ttl})
		until := l.Until()
		time.Sleep(time.Until(until) - time.Second)
		b.node("", func(n *node) { *n = node{deaf: true, after: time.Until(until) + 1} })
		b.take()
		for len(b.take()) == 0 {
			time.Sleep(time.Millisecond)
			b.node("", func(n *node) { n.after = time.Until(until) + 1 })
		}
		b.lost(l, Unreachable)
		b.inTime(until)
		require.EqualValues(b, 0, b.dog.Stats().Renewed)
	})
}

// A renewal that was sent too late to be answered before the lease's end shows no fault of the store,
// whether the reply or the timer comes first.
func TestReplyJustAfterUntilToALateRequest(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k"})
		open := b.shut()
		until := l.Until()
		time.Sleep(time.Until(until) - time.Second/10)
		b.node("", func(n *node) { n.after = time.Until(until) + 1 })
		open()
		require.ErrorIs(b, b.lost(l, Expired), errTooLate)
		require.Equal(b, until.Add(1), time.Now(), "by the reply")
	})
}

// A receiver from Lost finds the context ended, also between a loss and its report.
func TestLostAfterTheContext(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k"})
		ctx := l.Context()
		b.dog.mu.Lock()
		require.True(b, b.dog.lose(l, Deleted, nil))
		b.dog.mu.Unlock()
		<-l.Lost()
		assert.ErrorIs(b, context.Cause(ctx), ErrLost)
		l.signal()
	})
}

func TestStoreReportsThatTheLeaseIsGone(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.after = time.Second })
		gone, taken, kept := b.grant(Spec{Key: "gone"}), b.grant(Spec{Key: "taken"}), b.grant(Spec{Key: "kept"})
		b.remove("gone")
		b.remove("taken")
		require.True(b, b.acquire("taken", "another", time.Minute))
		_, err := lostIn(gone, 11*time.Second+tick)
		require.NoError(b, err, "told when the answer comes")
		_, err = lostIn(taken, 11*time.Second+tick)
		require.NoError(b, err)
		b.isLost(gone, Deleted)
		b.isLost(taken, TakenOver)
		requests := b.take()
		require.NotEmpty(b, requests)
		time.Sleep(time.Hour)
		require.NoError(b, kept.Err())
		for _, r := range b.take() {
			require.Equal(b, []string{"kept"}, r.keys)
		}
	})
}

func TestFixedLeaseIsNotRenewed(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k", Fixed: true})
		until := l.Until()
		b.lost(l, Expired)
		b.inTime(until)
		require.Empty(b, b.take())
	})
}

func TestMaxHold(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k", MaxHold: time.Hour})
		end := time.Now().Add(time.Hour)
		b.lost(l, MaxHold)
		b.inTime(end)
		synctest.Wait() // for a renewal that was sent at this instant
		b.forbid(l.Owner())
		time.Sleep(time.Hour)

		l = b.grant(Spec{Key: "short", MaxHold: time.Second})
		end = time.Now().Add(time.Second)
		b.lost(l, MaxHold)
		b.inTime(end)
	})
}

func TestHeartbeat(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		time.Sleep(time.Minute) // a heartbeat counts from the lease's own begin
		l := b.grant(Spec{Key: "k", Heartbeat: 4 * time.Second})
		for range 100 {
			time.Sleep(4*time.Second - 1)
			l.Beat()
		}
		end := time.Now().Add(4 * time.Second)
		require.NoError(b, l.Err())
		b.lost(l, NoHeartbeat)
		b.inTime(end)
		synctest.Wait() // for a renewal that was sent at this instant
		b.forbid(l.Owner())
		l.Beat()
		time.Sleep(time.Hour)
		require.ErrorIs(b, l.Err(), ErrLost)

		b.grant(Spec{Key: "without"}).Beat() // does nothing
	})
}

// Valid is right at the instant at which a lease ends, by its time or a rule of its holder, also
// while the wheel's worker, which reports the loss, is late.
func TestValidWhileTheWorkerIsLate(t *testing.T) {
	for cause, s := range map[Cause]Spec{
		Expired:     {Fixed: true},
		MaxHold:     {MaxHold: 5 * time.Second},
		NoHeartbeat: {Heartbeat: 5 * time.Second},
	} {
		t.Run(cause.String(), func(t *testing.T) {
			inBubble(t, Config{}, func(b *bench) {
				s.Key = "k"
				l, end := b.grant(s), time.Now().Add(5*time.Second)
				if s.Fixed {
					end = l.Until()
				}
				_, err := b.dog.wheel.Schedule(time.Until(end)-time.Second, func() { time.Sleep(time.Minute) })
				require.NoError(b, err)
				time.Sleep(time.Until(end) - 1)
				require.True(b, l.Valid())
				time.Sleep(time.Nanosecond)
				require.False(b, l.Valid(), "it has ended")
				require.NoError(b, l.Err(), "the worker is not late")
				_, err = l.Pass(Spec{TTL: 30 * time.Second})
				require.ErrorIs(b, err, ErrLost, "its rest is passed on")
				b.lost(l, cause)
			})
		})
	}
}

func TestHolderThatIsNotAlive(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		var mu sync.Mutex
		alive := true
		l := b.grant(Spec{Key: "k", Alive: func() bool {
			mu.Lock()
			defer mu.Unlock()
			return alive
		}})
		time.Sleep(time.Hour)
		synctest.Wait() // for a renewal that falls on this instant
		require.NoError(b, l.Err())
		mu.Lock()
		alive = false
		mu.Unlock()
		b.take()
		_, err := lostIn(l, 10*time.Second+tick)
		require.NoError(b, err, "told when a renewal would have been due")
		b.isLost(l, NotAlive)
		require.Empty(b, b.take())
	})
}

func TestAliveThatPanics(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k", Alive: func() bool { panic("boom") }})
		lost := b.lost(l, NotAlive)
		require.ErrorContains(b, lost, "boom")
		require.EqualValues(b, 1, b.dog.Stats().Panics)
	})
}

// A lease whose liveness function returns while the store does not answer is in the next
// probe: the dispatcher, which would otherwise sleep, learns of it.
func TestAliveBetweenTwoProbes(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		const pause = time.Second
		b.node("", func(n *node) { n.refuse = errRefused })
		var probe time.Time
		l := b.grant(Spec{Key: "k", Alive: func() bool {
			b.dog.mu.Lock()
			defer b.dog.mu.Unlock()
			if g := b.dog.groups[""]; g != nil && g.first.unanswered > 0 && probe.IsZero() {
				now := b.dog.clock.now()
				g.alone.unanswered, g.alone.silentAt, g.alone.nextProbe = 1, now, now.add(pause)
				probe = time.Now().Add(pause)
				b.node("", func(n *node) { n.refuse = nil })
				b.take()
			}
			return true
		}})
		time.Sleep(28 * time.Second)
		require.NoError(b, l.Err())
		requests := b.take()
		require.NotEmpty(b, requests)
		require.Equal(b, probe, requests[0].at)
	})
}

// A liveness function that does not return costs its own lease, and no other.
func TestAliveThatHangs(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		hang := make(chan bool)
		other := b.grant(Spec{Key: "other", Alive: func() bool { return true }})
		l := b.grant(Spec{Key: "k", Alive: func() bool { return <-hang }})
		until := l.Until()
		lost := b.lost(l, NotAlive)
		b.inTime(until)
		require.ErrorContains(b, lost, "has not returned")
		b.forbid(l.Owner())
		hang <- true
		time.Sleep(time.Hour)
		require.NoError(b, other.Err())
		b.isLost(l, NotAlive)
	})
}

func TestContextEndsTheLease(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		l := b.grant(Spec{Key: "k", Context: ctx})
		held := l.Context()
		time.Sleep(time.Minute)
		require.NoError(b, l.Err())
		cancel(enough)
		synctest.Wait()
		b.forbid(l.Owner())
		var lost *LostError
		require.ErrorAs(b, l.Err(), &lost)
		require.Equal(b, ContextEnded, lost.Cause)
		require.ErrorIs(b, lost, enough)
		require.Equal(b, enough, context.Cause(held), "a derived context has its parent's cause")
		time.Sleep(time.Hour)
	})
}

// A context that outlives the lease keeps no hook.
func TestContextOutlivesTheLease(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		ctx := &hooked{Context: context.Background(), done: make(chan struct{})}
		l := b.grant(Spec{Key: "k", Context: ctx})
		require.Equal(b, 1, ctx.hooks)
		b.stop(l)
		require.Zero(b, ctx.hooks)
		b.lost(b.grant(Spec{Key: "l", Fixed: true, Context: ctx}), Expired)
		require.Zero(b, ctx.hooks)
	})
}

// A lease that has ended before its hook was made keeps none either.
func TestContextOfALeaseThatHasEndedMeanwhile(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		ctx := &hooked{Context: context.Background(), done: make(chan struct{})}
		ctx.hooking = func() {
			ctx.hooking = nil
			require.Len(b, b.dog.Abandon(), 1)
		}
		l := b.grant(Spec{Key: "k", Context: ctx})
		require.Zero(b, ctx.hooks)
		b.isLost(l, Closed)
	})
}

// hooked is a context that counts its hooks.
type hooked struct {
	context.Context
	done    chan struct{}
	hooks   int
	hooking func() // nil, or called before a hook is made
}

func (c *hooked) Done() <-chan struct{} { return c.done }
func (c *hooked) AfterFunc(func()) func() bool {
	if c.hooking != nil {
		c.hooking()
	}
	c.hooks++
	return func() bool { c.hooks--; return true }
}

func TestOnLostThatPanicsOrHangs(t *testing.T) {
	var log strings.Builder
	inBubble(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(b *bench) {
		hang := make(chan bool)
		b.grant(Spec{Key: "panics", Owner: "secret", Fixed: true, OnLost: func(error) { panic("boom") }})
		b.grant(Spec{Key: "hangs", Fixed: true, OnLost: func(error) { <-hang }})
		told := make(chan error, 1)
		l := b.grant(Spec{Key: "k", Fixed: true, OnLost: func(err error) { told <- err }})
		until := l.Until()
		require.ErrorIs(b, <-told, ErrLost)
		b.inTime(until)
		synctest.Wait()
		require.EqualValues(b, 1, b.dog.Stats().Panics)
		close(hang)
	})
	require.Contains(t, log.String(), "boom")
	require.NotContains(t, log.String(), "secret")
}

// The wheel of the leases is stopped: no timer could report their loss later, so it is
// reported now.
func TestWheelIsStoppedTooEarly(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		shared := b.newWheel(wheel.Config{})
		dog, err := New(b.store, Config{Wheel: shared})
		require.NoError(b, err)
		own := &bench{b.T, b.store, dog}
		l := own.grant(Spec{Key: "k"})
		fixed := own.grant(Spec{Key: "fixed", Fixed: true})
		time.Sleep(time.Minute / 4)
		shared.Stop()
		dog.kick() // in real time the dispatcher looks by itself, see clock.checkEvery
		synctest.Wait()
		own.isLost(l, Closed)
		require.ErrorIs(b, own.isLost(fixed, Closed), wheel.ErrStopped)
		_, err = dog.Watch(Spec{Key: "late", TTL: time.Minute, Granted: time.Now()})
		require.ErrorIs(b, err, wheel.ErrStopped)
		own.close()

		_, err = New(b.store, Config{Wheel: shared})
		require.ErrorIs(b, err, wheel.ErrStopped)
	})
}

// A wheel that is being stopped takes out one timer after the other. A look meanwhile ends
// the leases whose timers are still pending, too.
func TestWheelIsStoppedDuringALook(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l, fixed := b.grant(Spec{Key: "k"}), b.grant(Spec{Key: "fixed", Fixed: true})
		b.dog.wheelProbe.Cancel() // as Stop does, first
		b.dog.kick()
		synctest.Wait()
		require.ErrorIs(b, b.isLost(l, Closed), wheel.ErrStopped)
		require.ErrorIs(b, b.isLost(fixed, Closed), wheel.ErrStopped)
	})
}

// A wheel that is full of a user's timeouts costs no lease: neither when the lease is watched,
// nor when its timer is armed again while another goroutine takes every place that is free.
func TestFullWheelCostsNoLease(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		shared := b.newWheel(wheel.Config{MaxPending: 3})
		defer shared.Stop()
		dog, err := New(b.store, Config{Wheel: shared})
		require.NoError(b, err)
		own := &bench{b.T, b.store, dog}
		defer own.close()
		fill := func() {
			for err == nil {
				_, err = shared.Schedule(24*time.Hour, func() {})
			}
			require.ErrorIs(b, err, wheel.ErrFull)
			err = nil
		}
		l := own.grant(Spec{Key: "k"})
		fill()
		time.Sleep(time.Until(l.deadline.Deadline()) - 1)
		dog.mu.Lock() // the timer's task waits for it
		time.Sleep(time.Nanosecond)
		for l.deadline.State() == wheel.Pending {
			runtime.Gosched()
		}
		fill()
		dog.mu.Unlock()
		time.Sleep(time.Hour)
		require.NoError(b, l.Err())
		own.grant(Spec{Key: "late"})
		require.Len(b, shared.Drain(), 3)
	})
}

// Drain of a wheel that the watchdog shares takes out the timeouts of users. Leases, those of
// before and those of afterwards, are renewed and lost in time as ever.
func TestDrainedWheelCostsNoLease(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		shared := b.newWheel(wheel.Config{})
		defer shared.Stop()
		dog, err := New(b.store, Config{Wheel: shared})
		require.NoError(b, err)
		own := &bench{b.T, b.store, dog}
		defer own.close()
		before := own.grant(Spec{Key: "before"})
		_, err = shared.Schedule(time.Hour, func() {})
		require.NoError(b, err)
		require.Len(b, shared.Drain(), 1)
		time.Sleep(time.Minute)
		after := own.grant(Spec{Key: "after"})
		time.Sleep(time.Minute)
		own.allHeld([]*Lease{before, after})
		b.node("", func(n *node) { n.mute = true })
		leases := []*Lease{before, after}
		slices.SortFunc(leases, func(a, b *Lease) int { return a.Until().Compare(b.Until()) })
		for _, l := range leases {
			until := l.Until()
			own.lost(l, Unreachable)
			b.inTime(until)
		}
	})
}

func TestCauseAndOutcomeHaveNames(t *testing.T) {
	for c := range Cause(causes) {
		if c > 0 {
			require.NotEmpty(t, c.String())
			require.NotContains(t, c.String(), "Cause")
		}
	}
	require.Equal(t, "Cause(0)", Cause(0).String())
	require.Equal(t, "Cause(77)", Cause(77).String())
	require.Equal(t, "renewed", Renewed.String())
	require.Equal(t, "Outcome(77)", Outcome(77).String())
}

// Durations that overflow are no limit, and count as no limit that is over already.
func TestRulesOfAnyLengthOverflowNothing(t *testing.T) {
	for _, long := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, 1 << 62, 250 * 365 * 24 * time.Hour} {
		inBubble(t, Config{RequestTimeout: long}, func(b *bench) {
			time.Sleep(time.Hour) // so that the sum overflows
			beating := b.grant(Spec{Key: "beating", Heartbeat: long})
			holding := b.grant(Spec{Key: "holding", MaxHold: long})
			time.Sleep(time.Hour)
			require.NoError(b, beating.Err(), "Heartbeat %v", long)
			require.NoError(b, holding.Err(), "MaxHold %v", long)
			beating.Beat()
			require.True(b, beating.Valid() && holding.Valid())
		})
	}
}

// A longest hold that was over before the watchdog was made is over.
func TestMaxHoldOfALeaseOlderThanTheWatchdog(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		_, err := b.dog.Watch(Spec{
			Key: "k", TTL: time.Minute, Granted: time.Now().Add(-10 * time.Second), MaxHold: 5 * time.Second,
		})
		require.ErrorIs(b, err, ErrLost)
		require.ErrorContains(b, err, MaxHold.String())
	})
}

// The errors of ended leases carry the name of the package that offers the leases.
func TestErrorsCarryThePackage(t *testing.T) {
	inBubble(t, Config{Package: "locks"}, func(b *bench) {
		stopped, lost := b.grant(Spec{Key: "stopped"}), b.grant(Spec{Key: "lost", MaxHold: time.Second})
		ctx := stopped.Context()
		require.NoError(b, stopped.Stop(context.Background()))
		time.Sleep(2 * time.Second)
		for _, test := range []struct{ got, is error }{
			{stopped.Err(), ErrReleased}, {context.Cause(ctx), ErrReleased}, {lost.Err(), ErrLost},
		} {
			require.ErrorIs(b, test.got, test.is)
			require.Regexp(b, "^locks: lease", test.got.Error())
		}
	})
	require.Regexp(t, "^renewal: lease", (&LostError{Key: "k", Cause: Expired}).Error())
}

// For every tick of the wheel and every instant of a grant, the lease's context has ended
// when the store drops the lease: another holder may begin then.
func TestLossIsReportedBeforeTheStoreDropsTheLease(t *testing.T) {
	for _, tick := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			coarse, err := wheel.New(wheel.Config{Tick: tick})
			require.NoError(t, err)
			defer coarse.Stop()
			s := newStore()
			dog, err := New(s, Config{Wheel: coarse})
			require.NoError(t, err)
			b := &bench{t, s, dog}
			defer b.close()
			b.node("", func(n *node) { n.mute = true })
			for i := range 20 {
				time.Sleep(tick/20 + time.Nanosecond) // at another part of a tick
				granted := time.Now()
				ttl := max(minTicks*tick, minTTL) + time.Duration(i)*tick/3
				l := b.grant(Spec{Key: fmt.Sprint(i), TTL: ttl})
				<-l.Context().Done()
				require.LessOrEqual(t, time.Since(granted), ttl, "a tick of %v", tick)
			}
		})
	}
}

// The store has given a time that was over before the reply, as one that computes what is left may.
func TestGivenTimeThatIsOver(t *testing.T) {
	for _, gives := range []time.Duration{-time.Second, math.MinInt64} {
		inBubble(t, Config{}, func(b *bench) {
			l := b.grant(Spec{Key: "k"})
			b.node("", func(n *node) { n.gives = gives })
			until := l.Until()
			b.lost(l, Unreachable)
			require.True(b, time.Now().Before(until))
		})
	}
}
