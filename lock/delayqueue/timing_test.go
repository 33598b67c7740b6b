package delayqueue_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// slack is how late a message may be in virtual time, in which requests take no time: its
// due time is rounded up to a ms, and the wheel's tick is another.
const slack = 2 * time.Millisecond

// Messages up to hours away, longer than a poll, are claimed when they are due: not a ms before,
// and hardly one after.
func TestClaimedWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, embedded(t), config{Poll: time.Hour})
		const n = 70 // two for each power of two
		due := make(map[string]time.Time)
		var messages []message
		for i := range n {
			m := message{ID: strconv.Itoa(i)}
			switch d := rand.N(time.Duration(1) << (10 + i/2)); { // up to 5 hours
			case i%2 == 0:
				m.Delay = d
				due[m.ID] = time.Now().Add(d)
			default:
				m.Due = time.Now().Add(d)
				due[m.ID] = m.Due
			}
			messages = append(messages, m)
		}
		put(t, q, messages...)
		l := newLog()
		work(t, q, func(_ context.Context, d *delivery) error {
			late := time.Since(due[d.ID])
			assert.GreaterOrEqual(t, late, time.Duration(0), "early")
			assert.LessOrEqual(t, late, slack)
			assert.LessOrEqual(t, d.Late(), slack)
			return nil
		}, worker{Report: l.add})
		time.Sleep(5 * time.Hour)
		assert.Len(t, l.all(), n)
	})
}

// A worker sleeps until the first message is due, and still gets messages in time that
// are put later and due earlier.
func TestWokenForEarlierMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		q, elsewhere := open(t, server.Client(t), config{Poll: 24 * time.Hour}), open(t, server.Client(t), config{})
		l := newLog()
		work(t, q, succeed, worker{Report: l.add})
		synctest.Wait()
		put(t, elsewhere, message{ID: "last", Delay: 10 * time.Hour}, message{ID: "moved", Delay: 11 * time.Hour},
			message{ID: "later", Delay: time.Minute})
		synctest.Wait()
		put(t, elsewhere, message{ID: "hour", Delay: time.Hour})
		put(t, elsewhere, message{ID: "now"})
		synctest.Wait()
		put(t, elsewhere, message{ID: "past", Due: time.Now().Add(-time.Hour)})
		time.Sleep(slack)
		assert.Equal(t, []string{"now done", "past done"}, outcomes(l.all()))
		require.NoError(t, elsewhere.Move(t.Context(), "later", time.Now().Add(9*time.Hour)))

		time.Sleep(time.Hour)
		assert.Equal(t, "hour", l.all()[2].ID)
		time.Sleep(time.Hour) // beyond the claim at the end of its lease
		require.NoError(t, elsewhere.MoveIn(t.Context(), "moved", time.Minute))
		time.Sleep(time.Minute + slack)
		require.Len(t, l.all(), 4, "the worker is woken")
		assert.Equal(t, "moved", l.all()[3].ID)
		time.Sleep(9 * time.Hour)
		for _, r := range l.all() {
			assert.LessOrEqual(t, r.Late(), slack, r.ID)
		}
		assert.Equal(t, []string{"now done", "past done", "hour done", "moved done", "later done", "last done"}, outcomes(l.all()))
		assert.Zero(t, l.all()[1].Claimed.Sub(l.all()[1].Due), "a past due time is now")
	})
}

// A waiting worker sends no requests except polls.
func TestIdleWorkersOnlyPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{Poll: 10 * time.Minute})
		put(t, q, message{ID: "a", Delay: 100 * time.Hour}, message{ID: "b"})
		work(t, q, succeed, worker{})
		time.Sleep(time.Minute) // the next poll is at the end of the first lease
		before := runtime.NumGoroutine()
		var messages []message
		for i := range 1000 {
			messages = append(messages, message{ID: strconv.Itoa(i), Delay: 101 * time.Hour})
		}
		put(t, q, messages...)
		synctest.Wait()
		assert.Less(t, runtime.NumGoroutine(), before+100, "a goroutine for each that waits") // other tests' come and go
		sent := redistest.CountRoundTrips(client)
		time.Sleep(2 * time.Hour)
		assert.EqualValues(t, 12, sent.Load())
	})
}

// delayed delays the replies to scripts. Connections are made without delay.
type delayed struct{ by time.Duration }

func (h delayed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h delayed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.delay(cmd)
		return err
	}
}

func (h delayed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.delay(cmds...)
		return err
	}
}

func (h delayed) delay(cmds ...redis.Cmder) {
	if slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == "evalsha" }) {
		time.Sleep(h.by)
	}
}

// A lease counts from the sending of the claim: the server has counted since before its
// reply arrived.
func TestLeaseCountsFromTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{RequestTimeout: time.Minute})
		put(t, q, message{ID: "a"})
		client.AddHook(delayed{3 * time.Second})
		l := newLog()
		stop := work(t, q, func(_ context.Context, d *delivery) error {
			assert.Less(t, time.Until(d.Until()), 7*time.Second)
			assert.Greater(t, time.Until(d.Until()), 3*time.Second) // the server had to load the script
			return nil
		}, worker{TTL: 10 * time.Second, Concurrency: 1, Report: l.add})
		l.await(t, 1)
		stop()

		// A lease that is over when the reply arrives is not used.
		put(t, q, message{ID: "b"})
		client.AddHook(delayed{time.Hour})
		began := make(chan struct{})
		work(t, q, func(context.Context, *delivery) error { close(began); return nil }, worker{MaxAttempts: -1, TTL: time.Minute})
		time.Sleep(5 * time.Hour)
		select {
		case <-began:
			assert.Fail(t, "begun with a lease that had ended")
		default:
		}
	})
}

// A worker whose leases end before it can begin reports that, and does not claim the same
// messages again and again meanwhile.
func TestLeasesThatCannotBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		var said safeBuilder
		q := open(t, client, config{Logger: logTo(&said)})
		put(t, q, message{ID: "a"})
		client.AddHook(delayed{2 * time.Millisecond})
		l := newLog()
		stop := work(t, q, succeed, worker{MaxHold: time.Millisecond, Report: l.add})
		time.Sleep(time.Minute)
		stop()
		require.NoError(t, q.Shutdown(t.Context())) // all messages are written
		assert.Greater(t, len(l.all()), 10)
		assert.Less(t, len(l.all()), 60)
		for _, r := range l.all() {
			assert.Equal(t, delayqueue.Returned, r.Outcome)
			assert.Equal(t, 1, r.Attempt)
		}
		assert.Contains(t, said.String(), "leases cannot be kept")
		assert.Contains(t, said.String(), "held too long")
		assert.NotContains(t, said.String(), "dropped")
	})
}

// Polls find messages that were not published.
func TestBackstop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		q := open(t, server.Client(t), config{})
		put(t, q, message{ID: "a", Delay: time.Hour})
		l := newLog()
		work(t, q, succeed, worker{Report: l.add})
		time.Sleep(time.Second)
		require.NoError(t, server.Client(t).ZAdd(t.Context(), "leasewheel_queue_due:{mails}", redis.Z{Score: 1, Member: "a"}).Err())
		time.Sleep(delayqueue.DefaultPoll)
		assert.Len(t, l.all(), 1)
	})
}

// unplugged fails every command, like a disconnected network.
type unplugged struct{}

func (unplugged) DialHook(next redis.DialHook) redis.DialHook { return next }

func (unplugged) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return io.EOF }
}

func (unplugged) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			cmd.SetErr(io.EOF)
		}
		return io.EOF
	}
}

// A message whose worker is cut off goes to another one when its lease has ended. The
// first worker has lost the lease before.
func TestLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		mine, theirs := server.Client(t), server.Client(t)
		first, second := open(t, mine, config{}), open(t, theirs, config{Poll: time.Hour})
		put(t, first, message{ID: "a"})
		var (
			lost   time.Time
			cause  error
			tokens []int64
		)
		l := newLog()
		work(t, first, func(ctx context.Context, d *delivery) error {
			tokens = append(tokens, d.Token)
			<-ctx.Done()
			lost, cause = time.Now(), context.Cause(ctx)
			assert.False(t, d.Valid())
			return nil
		}, worker{TTL: 10 * time.Second, Report: l.add})
		synctest.Wait()
		var again time.Time
		begun := time.Now()
		other := newLog()
		work(t, second, func(_ context.Context, d *delivery) error {
			again = time.Now()
			tokens = append(tokens, d.Token)
			assert.Equal(t, 2, d.Attempt)
			return nil
		}, worker{Report: other.add})
		time.Sleep(time.Minute)
		assert.Empty(t, other.all(), "it is renewed while its handler works")
		mine.AddHook(unplugged{})
		cut := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()

		require.Equal(t, []string{"a done"}, outcomes(other.all()))
		require.Equal(t, []string{"a forfeited"}, outcomes(l.all()))
		require.ErrorIs(t, cause, delayqueue.ErrLost)
		assert.True(t, lost.Before(again), "two workers had it")
		assert.LessOrEqual(t, again.Sub(cut), 10*time.Second+slack)
		assert.Less(t, again.Sub(lost), 200*time.Millisecond)
		assert.Greater(t, tokens[1], tokens[0])
		assert.Greater(t, cut.Sub(begun), 50*time.Second)
	})
}

// A server that has lost a message, or has given another of its name away, reports so at
// the next renewal.
func TestMessageLostByTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, again := range []bool{false, true} {
			server := locktest.Start(t)
			q, other := open(t, server.Client(t), config{}), open(t, server.Client(t), config{})
			put(t, q, message{ID: "a"})
			var told time.Time
			l := newLog()
			work(t, q, func(ctx context.Context, _ *delivery) error {
				<-ctx.Done()
				told = time.Now()
				reason, _ := errors.AsType[*renewal.LostError](context.Cause(ctx))
				assert.Equal(t, map[bool]renewal.Cause{false: renewal.Deleted, true: renewal.TakenOver}[again], reason.Cause)
				return nil
			}, worker{TTL: 30 * time.Second, Concurrency: 1, Report: l.add})
			time.Sleep(time.Minute)
			synctest.Wait() // for a renewal that falls on this instant
			server.DeleteAll()
			forgotten := time.Now()
			theirs, end := newLog(), make(chan struct{})
			if again {
				put(t, other, message{ID: "a"})
				work(t, other, func(context.Context, *delivery) error { <-end; return nil }, worker{Concurrency: 1, Report: theirs.add})
				synctest.Wait()
			}
			l.await(t, 1)
			assert.LessOrEqual(t, told.Sub(forgotten), 10*time.Second+slack)
			assert.Equal(t, delayqueue.Forfeited, l.all()[0].Outcome)
			close(end)
			if again {
				assert.Equal(t, delayqueue.Done, theirs.await(t, 1)[0].Outcome)
			}
		}
	})
}

// A hanging handler keeps its message for MaxHold, and no longer.
func TestMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		q := open(t, server.Client(t), config{})
		put(t, q, message{ID: "a"})
		begun := time.Now()
		l, release := newLog(), make(chan struct{})
		hangs := func(ctx context.Context, _ *delivery) error {
			<-ctx.Done()
			assert.Equal(t, time.Minute, time.Since(begun).Round(100*time.Millisecond))
			assert.ErrorContains(t, context.Cause(ctx), "held too long")
			<-release // ignores its context
			return nil
		}
		work(t, q, hangs, worker{TTL: 10 * time.Second, MaxHold: time.Minute, Concurrency: 1, Report: l.add})
		synctest.Wait()
		other := newLog()
		work(t, open(t, server.Client(t), config{}), succeed, worker{Report: other.add})
		time.Sleep(80 * time.Second)
		require.Len(t, other.all(), 1)
		assert.Equal(t, 2, other.all()[0].Attempt)
		close(release)
		assert.Equal(t, delayqueue.Forfeited, l.await(t, 1)[0].Outcome)
	})
}

// A worker's settlement counts even after its lease has ended, as long as the message was
// not claimed since.
func TestLateSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{})
		put(t, q, message{ID: "a"})
		l := newLog()
		work(t, q, func(context.Context, *delivery) error {
			time.Sleep(time.Hour)
			return nil
		}, worker{Concurrency: 1, MaxHold: time.Minute, Report: l.add})
		time.Sleep(2 * time.Hour)
		assert.Equal(t, []string{"a done"}, outcomes(l.all()))
		assert.Empty(t, whole(t, client))
	})
}

func TestBackoffAndDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{})
		put(t, q, message{ID: "a"})
		l := newLog()
		var at []time.Time
		work(t, q, func(_ context.Context, d *delivery) error {
			at = append(at, time.Now())
			if d.Attempt > 1 {
				assert.Equal(t, errFailed.Error(), d.LastError)
			}
			return errFailed
		}, worker{MaxAttempts: 6, Backoff: delayqueue.Exponential(time.Second, 5*time.Second), Report: l.add})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, at, 6)
		for i, most := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
			waited := at[i+1].Sub(at[i])
			assert.GreaterOrEqual(t, waited, most/2, i)
			assert.LessOrEqual(t, waited, most+slack, i)
		}
		assert.Equal(t, []string{"a retried", "a retried", "a retried", "a retried", "a retried", "a buried"}, outcomes(l.all()))
		require.ErrorIs(t, l.all()[5].Err, errFailed)

		info, err := q.Get(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, delayqueue.Dead, info.State)
		assert.Equal(t, 6, info.Attempt)
		assert.Equal(t, errFailed.Error(), info.LastError)
		assert.WithinDuration(t, at[5], info.Died, slack)
		require.ErrorIs(t, q.MoveIn(t.Context(), "a", 0), delayqueue.ErrDead)

		revived, err := q.Revive(t.Context(), "a", "b", "a")
		require.NoError(t, err)
		assert.Equal(t, 1, revived)
		time.Sleep(slack)
		synctest.Wait()
		require.Len(t, at, 7)
		assert.Equal(t, 1, l.all()[6].Attempt, "all its attempts are before it again")
		whole(t, client)
	})
}

// A message is tried ten times by default, and without an end if the number is negative.
func TestDefaultOfAttempts(t *testing.T) {
	for most, dead := range map[int]bool{0: true, -1: false} {
		synctest.Test(t, func(t *testing.T) {
			q := open(t, embedded(t), config{})
			put(t, q, message{ID: "a"})
			tried := 0
			work(t, q, func(context.Context, *delivery) error {
				tried++
				return errFailed
			}, worker{MaxAttempts: most, Backoff: func(int, error) time.Duration { return time.Second }})
			time.Sleep(time.Minute)
			synctest.Wait()
			info, err := q.Get(t.Context(), "a")
			require.NoError(t, err)
			assert.Equal(t, dead, info.State == delayqueue.Dead)
			assert.Equal(t, dead, tried == 10, "%d attempts", tried)
		})
	}
}

// A backoff is no longer than configured, and varies.
func TestExponential(t *testing.T) {
	b := delayqueue.Exponential(time.Second, time.Hour)
	seen := make(map[time.Duration]bool)
	for attempt := 1; attempt < 100; attempt++ {
		most := time.Hour
		if attempt < 13 {
			most = min(most, time.Second<<(attempt-1))
		}
		d := b(attempt, errFailed)
		assert.GreaterOrEqual(t, d, most/2, attempt)
		assert.LessOrEqual(t, d, most, attempt)
		seen[d] = true
	}
	assert.Greater(t, len(seen), 90)
	assert.LessOrEqual(t, delayqueue.Exponential(1, 1)(1, nil), time.Duration(1))
	assert.LessOrEqual(t, b(0, nil), time.Second)
}

func TestVerdictsOfHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{})
		put(t, q, message{ID: "after"}, message{ID: "at once"}, message{ID: "rejected"}, message{ID: "negative"}, message{ID: "failed"}, message{ID: "panicked"})
		begun := time.Now()
		l := newLog()
		work(t, q, func(_ context.Context, d *delivery) error {
			switch {
			case d.ID == "rejected":
				return delayqueue.Reject(errFailed)
			case d.Attempt > 1:
				return nil
			case d.ID == "after":
				return delayqueue.RetryAfter(time.Hour, errFailed)
			case d.ID == "negative":
				return delayqueue.RetryAfter(-time.Hour, nil)
			case d.ID == "failed":
				return errFailed
			case d.ID == "panicked":
				panic(delayqueue.Reject(errFailed)) // a failure, not a verdict
			}
			return delayqueue.RetryAfter(0, nil)
		}, worker{Report: l.add, Concurrency: 1})
		time.Sleep(slack)
		assert.ElementsMatch(t, []string{
			"after retried", "at once retried", "negative retried", "rejected buried", "failed retried", "panicked retried",
			"at once done", "negative done",
		}, outcomes(l.all()))
		for _, r := range l.all() {
			if r.Err != nil && (r.ID == "after" || r.ID == "rejected") {
				require.ErrorIs(t, r.Err, errFailed)
			}
		}
		info, err := q.Get(t.Context(), "after")
		require.NoError(t, err)
		assert.Equal(t, delayqueue.Delayed, info.State)
		assert.WithinDuration(t, begun.Add(time.Hour), info.Due, slack)
		info, err = q.Get(t.Context(), "failed")
		require.NoError(t, err)
		assert.WithinRange(t, info.Due, begun.Add(delayqueue.DefaultBackoff/2), begun.Add(delayqueue.DefaultBackoff+slack))
		time.Sleep(time.Hour)
		assert.ElementsMatch(t, []string{"failed done", "panicked done", "after done"}, outcomes(l.all())[8:])
		assert.Equal(t, map[string][]string{"dead": {"rejected"}}, whole(t, client))
		require.EqualError(t, delayqueue.Reject(nil), "the handler rejected the message")
	})
}

// What a handler writes to its delivery changes neither its outcome nor its report.
func TestHandlerOverwritesItsDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{})
		put(t, q, message{ID: "a"})
		l := newLog()
		var attempts []int
		work(t, q, func(_ context.Context, d *delivery) error {
			*d = delivery{ID: "b", Attempt: 100}
			return errFailed
		}, worker{MaxAttempts: 2, Concurrency: 1, Report: l.add, Backoff: func(attempt int, _ error) time.Duration {
			attempts = append(attempts, attempt)
			return 0
		}})
		time.Sleep(time.Second)
		assert.Equal(t, []string{"a retried", "a buried"}, outcomes(l.all()))
		assert.Equal(t, []int{1}, attempts)
		assert.Equal(t, map[string][]string{"dead": {"a"}}, whole(t, client))
	})
}

// Panics, and the end of a handler's goroutine, are failures of one message.
func TestPanicsAreFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		var logged safeBuilder
		q := open(t, client, config{Logger: logTo(&logged)})
		put(t, q, message{ID: "panics"}, message{ID: "exits"}, message{ID: "works"})
		l := newLog()
		work(t, q, func(_ context.Context, d *delivery) error {
			switch d.ID {
			case "panics":
				panic("oh dear")
			case "exits":
				runtime.Goexit()
			}
			return nil
		}, worker{MaxAttempts: 1, Report: func(r report) { l.add(r); panic("the report, too") }})
		time.Sleep(time.Second)
		assert.ElementsMatch(t, []string{"panics buried", "exits buried", "works done"}, outcomes(l.all()))
		assert.Regexp(t, `msg="delayqueue: panic in a handler" queue=mails id=panics panic="oh dear" stack=.*timing_test\.go`, logged.String())
		assert.Regexp(t, `msg="delayqueue: panic in WorkerConfig\.Report" queue=mails id=works panic="the report, too" stack=`, logged.String())
		for _, r := range l.all() {
			if r.ID == "panics" {
				var p *lock.PanicError
				require.ErrorAs(t, r.Err, &p)
				assert.Equal(t, "oh dear", p.Value)
				assert.Contains(t, string(p.Stack), "timing_test.go")
			}
		}
		info, err := q.Get(t.Context(), "panics")
		require.NoError(t, err)
		assert.Equal(t, "the function panicked: oh dear", info.LastError)
		info, err = q.Get(t.Context(), "exits")
		require.NoError(t, err)
		assert.Equal(t, "the function called runtime.Goexit", info.LastError)
	})
}

// hostile is an error whose text cannot be read.
type hostile struct{}

func (hostile) Error() string { panic("no text") }

// Misbehaving user functions lead to another attempt.
func TestHostileErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{})
		put(t, q, message{ID: "error"}, message{ID: "backoff"}, message{ID: "long"}, message{ID: "negative"})
		l := newLog()
		work(t, q, func(_ context.Context, d *delivery) error {
			switch d.ID {
			case "error":
				return hostile{}
			case "long":
				return errors.New(strings.Repeat("x", 1020) + "\x00 " + strings.Repeat("ü", 1000))
			}
			return errFailed
		}, worker{Report: l.add, Backoff: func(int, error) time.Duration {
			if len(l.all()) == 0 {
				panic("no backoff")
			}
			return -time.Hour
		}, MaxAttempts: 2, Concurrency: 1})
		time.Sleep(time.Hour)
		assert.Len(t, l.all(), 8)
		for _, id := range []string{"error", "backoff", "long", "negative"} {
			info, err := q.Get(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, delayqueue.Dead, info.State, id)
			if id == "long" {
				assert.Equal(t, strings.Repeat("x", 1020)+"\x00 ü", info.LastError)
			}
		}
	})
}

// exiting is an error that ends the goroutine of whatever reads its text.
type exiting struct{}

func (exiting) Error() string { runtime.Goexit(); return "" }

// The end of the handler's goroutine in other functions of the user is a failure, as in the
// handler.
func TestGoexitAfterTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, embedded(t), config{})
		put(t, q, message{ID: "error"}, message{ID: "backoff"})
		l := newLog()
		work(t, q, func(_ context.Context, d *delivery) error {
			if d.ID == "error" {
				return exiting{}
			}
			return errFailed
		}, worker{Report: l.add, MaxAttempts: 2, Backoff: func(int, error) time.Duration {
			runtime.Goexit()
			return 0
		}})
		time.Sleep(time.Hour)
		assert.ElementsMatch(t, []string{"error retried", "backoff retried", "error buried", "backoff buried"}, outcomes(l.all()))
	})
}

// A worker claims no more than it handles, and handles no more than allowed.
func TestConcurrencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{})
		var messages []message
		for i := range 100 {
			messages = append(messages, message{ID: strconv.Itoa(i)})
		}
		put(t, q, messages...)
		var running, most atomic.Int64
		l := newLog()
		begun := time.Now()
		work(t, q, func(ctx context.Context, _ *delivery) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			stats, err := q.Stats(ctx)
			assert.NoError(t, err)
			assert.LessOrEqual(t, stats.Leased, int64(7))
			time.Sleep(time.Second)
			return nil
		}, worker{Concurrency: 7, Report: l.add})
		l.await(t, 100)
		assert.EqualValues(t, 7, most.Load())
		assert.WithinDuration(t, begun.Add(15*time.Second), time.Now(), time.Second, "places are taken again at once")
	})
}

// One worker with one place gets messages in the order of their due times.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, embedded(t), config{})
		var messages []message
		for _, i := range rand.Perm(100) {
			messages = append(messages, message{ID: strconv.Itoa(i), Delay: time.Duration(i) * time.Millisecond})
		}
		put(t, q, messages...)
		time.Sleep(time.Second)
		l := newLog()
		work(t, q, succeed, worker{Concurrency: 1, Report: l.add})
		for i, r := range l.await(t, 100) {
			require.Equal(t, strconv.Itoa(i), r.ID)
		}
	})
}

// At the end of its context a worker claims no more, and waits for its handlers.
func TestWorkEndsGracefully(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{})
		put(t, q, message{ID: "a"}, message{ID: "b", Delay: time.Second})
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		l := newLog()
		go func() {
			time.Sleep(500 * time.Millisecond)
			cancel()
		}()
		begun := time.Now()
		require.NoError(t, q.Work(ctx, func(ctx context.Context, _ *delivery) error {
			assert.Equal(t, "value", ctx.Value(key{}))
			time.Sleep(time.Hour)
			return ctx.Err()
		}, worker{Report: l.add}))
		assert.Equal(t, time.Hour, time.Since(begun))
		assert.Equal(t, []string{"a done"}, outcomes(l.all()))
		assert.Equal(t, map[string][]string{"due": {"b"}}, whole(t, client))
	})
}

// When Grace is over, handlers' contexts end, and another worker gets the unfinished
// messages at once, without the loss of an attempt.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, grace := range []time.Duration{time.Minute, -1} {
			client := embedded(t)
			q := open(t, client, config{})
			put(t, q, message{ID: "a"}, message{ID: "b"})
			ctx, cancel := context.WithCancel(t.Context())
			l, begun := newLog(), time.Now()
			go func() {
				time.Sleep(time.Second)
				cancel()
			}()
			require.NoError(t, q.Work(ctx, func(ctx context.Context, d *delivery) error {
				<-ctx.Done()
				assert.True(t, d.Valid(), "it is still this worker's")
				assert.ErrorIs(t, context.Cause(ctx), delayqueue.ErrClosed)
				if d.ID == "b" {
					return nil // was just done
				}
				return ctx.Err()
			}, worker{Grace: grace, MaxAttempts: 1, Report: l.add}))
			assert.Equal(t, time.Second+max(0, grace), time.Since(begun))
			assert.ElementsMatch(t, []string{"a returned", "b done"}, outcomes(l.all()))
			other := newLog()
			stop := work(t, q, succeed, worker{Report: other.add})
			assert.Equal(t, 1, other.await(t, 1)[0].Attempt)
			stop()
		}
	})
}

// atClaim calls a function once, after the reply to a claim.
type atClaim struct{ call func() }

func (h atClaim) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h atClaim) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if list, ok := cmd.(interface{ Val() any }); ok && err == nil {
			if reply, ok := list.Val().([]any); ok && len(reply) > 3 {
				h.call()
			}
		}
		return err
	}
}

func (h atClaim) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Messages that are claimed while the worker ends are given back at once.
func TestUnbegunIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{})
		put(t, q, message{ID: "a"}, message{ID: "b"})
		ctx, cancel := context.WithCancel(t.Context())
		client.AddHook(atClaim{cancel})
		l := newLog()
		require.NoError(t, q.Work(ctx, func(context.Context, *delivery) error {
			assert.Fail(t, "begun by a worker that ends")
			return nil
		}, worker{Report: l.add}))
		assert.ElementsMatch(t, []string{"a returned", "b returned"}, outcomes(l.all()))
		info, err := q.Get(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, delayqueue.Ready, info.State)
		assert.Zero(t, info.Attempt)
	})
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, config{})
		put(t, q, message{ID: "a"})
		ended := make(chan error)
		go func() {
			ended <- q.Work(t.Context(), func(context.Context, *delivery) error { time.Sleep(time.Minute); return nil }, worker{})
		}()
		synctest.Wait()
		var closing sync.WaitGroup
		for range 2 {
			closing.Go(func() { assert.NoError(t, q.Shutdown(t.Context())) })
		}
		begun := time.Now()
		require.NoError(t, <-ended)
		closing.Wait()
		assert.Equal(t, time.Minute, time.Since(begun))
		assert.Empty(t, whole(t, client), "what was handled is done")
		_, err := q.Put(t.Context(), message{ID: "b"})
		require.ErrorIs(t, err, delayqueue.ErrClosed)
		require.ErrorIs(t, q.Work(t.Context(), succeed, worker{}), delayqueue.ErrClosed)
	})
}

// Shutdown waits for nothing without a message in hand, also with a context that has ended.
func TestShutdownAfterTheEndOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 10 {
			q := open(t, embedded(t), config{})
			require.NoError(t, q.Work(ended, succeed, worker{}))
			require.NoError(t, q.Shutdown(ended), "after Work")
			q = open(t, embedded(t), config{})
			put(t, q, message{ID: "a"})
			work(t, q, succeed, worker{})
			synctest.Wait()
			require.NoError(t, q.Shutdown(ended), "beside an idle Work")
		}
	})
}

// Close waits for no handler, and ends its lease.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		q := open(t, server.Client(t), config{})
		put(t, q, message{ID: "a"})
		begun, lost, release := make(chan struct{}), make(chan error, 1), make(chan struct{})
		l := newLog()
		stop := work(t, q, func(ctx context.Context, _ *delivery) error {
			close(begun)
			<-ctx.Done()
			lost <- context.Cause(ctx)
			<-release
			return nil
		}, worker{TTL: 10 * time.Second, Report: l.add})
		<-begun
		closing := time.Now()
		require.NoError(t, q.Close())
		assert.Zero(t, time.Since(closing))
		require.ErrorIs(t, <-lost, delayqueue.ErrLost)
		require.NoError(t, q.Close(), "twice")
		_, err := q.Put(t.Context(), message{ID: "b"})
		require.ErrorIs(t, err, delayqueue.ErrClosed)
		other := newLog()
		work(t, open(t, server.Client(t), config{}), succeed, worker{Report: other.add})
		other.await(t, 1)
		assert.LessOrEqual(t, time.Since(closing), 11*time.Second, "the lease ends by its TTL")
		close(release)
		stop()
		assert.Equal(t, delayqueue.Forfeited, l.await(t, 1)[0].Outcome)
	})
}

// A handler that does not end cannot block Shutdown without end. Its lease is lost.
func TestShutdownDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		client := server.Client(t)
		q := open(t, client, config{})
		put(t, q, message{ID: "a"})
		release := make(chan struct{})
		l := newLog()
		stop := work(t, q, func(ctx context.Context, _ *delivery) error {
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), delayqueue.ErrLost)
			<-release
			return errFailed
		}, worker{TTL: 10 * time.Second, Report: l.add})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := q.Shutdown(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "handlers still run")
		other := newLog()
		work(t, open(t, server.Client(t), config{}), succeed, worker{Report: other.add})
		other.await(t, 1)
		close(release)
		stop()
		assert.Equal(t, delayqueue.Forfeited, l.await(t, 1)[0].Outcome)
	})
}

// Many queues can share a wheel; a worker whose wheel was stopped returns an error.
func TestWheelOfOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, err := wheel.New(wheel.Config{Tick: 50 * time.Millisecond})
		require.NoError(t, err)
		q := open(t, embedded(t), config{Wheel: shared})
		ended := open(t, embedded(t), config{Wheel: shared})
		for _, q := range []*delayqueue.Queue{q, ended} {
			require.ErrorIs(t, q.Work(t.Context(), succeed, worker{TTL: 140 * time.Millisecond}), delayqueue.ErrInvalid, "less than four ticks")
		}
		require.NoError(t, ended.Shutdown(t.Context()), "which leaves the wheel to others")
		put(t, q, message{ID: "a", Delay: time.Minute}, message{ID: "b", Delay: time.Hour})
		l := newLog()
		result := make(chan error)
		go func() { result <- q.Work(t.Context(), succeed, worker{Report: l.add}) }()
		time.Sleep(time.Minute + 100*time.Millisecond)
		assert.Len(t, l.all(), 1)
		shared.Stop()
		put(t, q, message{ID: "c", Delay: time.Minute})
		require.ErrorIs(t, <-result, wheel.ErrStopped)
	})
}
