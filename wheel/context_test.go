package wheel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/leasewheel/leasewheel/wheel"
)

// ended reports whether a context is done; what Done and Err say must agree.
func ended(ctx context.Context, t *testing.T) bool {
	t.Helper()
	// Err first: once it is not nil, Done must be closed.
	err := ctx.Err()
	select {
	case <-ctx.Done():
		if ctx.Err() == nil || context.Cause(ctx) == nil {
			t.Errorf("%v is done, but its error is %v and its cause %v", ctx, ctx.Err(), context.Cause(ctx))
		}
		return true
	default:
		if err != nil {
			t.Errorf("%v has the error %v, but is not done", ctx, err)
		}
		return false
	}
}

// wantEnd checks how a context has ended; nil for one that has not.
func wantEnd(ctx context.Context, t *testing.T, name string, err, cause error) {
	t.Helper()
	if ended(ctx, t) != (err != nil) || !errors.Is(ctx.Err(), err) || !errors.Is(context.Cause(ctx), cause) {
		t.Errorf("%s: error %v and cause %v, want %v and %v", name, ctx.Err(), context.Cause(ctx), err, cause)
	}
}

var errLate = errors.New("too late")

// makeFunc begins a context that ends after d.
type makeFunc = func(parent context.Context, d time.Duration) (context.Context, context.CancelFunc)

// makers are the ways to put a deadline on the wheel, with the cause that they
// give it.
var makers = map[string]struct {
	make  func(w *wheel.Wheel, parent context.Context, d time.Duration) (context.Context, context.CancelFunc)
	cause error
}{
	"WithTimeout": {func(w *wheel.Wheel, parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
		return w.WithTimeout(parent, d)
	}, context.DeadlineExceeded},
	"WithDeadline": {func(w *wheel.Wheel, parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
		return w.WithDeadline(parent, time.Now().Add(d))
	}, context.DeadlineExceeded},
	"WithTimeoutCause": {func(w *wheel.Wheel, parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
		return w.WithTimeoutCause(parent, d, errLate)
	}, errLate},
	"WithDeadlineCause": {func(w *wheel.Wheel, parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
		return w.WithDeadlineCause(parent, time.Now().Add(d), errLate)
	}, errLate},
}

// eachMaker runs a test with each way, on a wheel with ticks of 10 ms: with the
// test's context as it is, and as a parent that never ends.
func eachMaker(t *testing.T, test func(t *testing.T, begin makeFunc, cause error)) {
	t.Helper()
	for name, maker := range makers {
		t.Run(name, func(t *testing.T) {
			bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
				test(t, func(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
					return maker.make(w, parent, d)
				}, maker.cause)
			})
		})
		t.Run(name+", endless parent", func(t *testing.T) {
			bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
				test(t, func(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
					if parent == t.Context() {
						parent = context.WithoutCancel(parent)
					}
					return maker.make(w, parent, d)
				}, maker.cause)
			})
		})
	}
}

// The context ends at its deadline: never before, within a tick after, and with
// its cause. So do the standard library's contexts that derive from it, whose
// error is that of a deadline too.
func TestContextEndsAtItsDeadline(t *testing.T) {
	eachMaker(t, func(t *testing.T, begin makeFunc, cause error) {
		start := time.Now()
		ctx, cancel := begin(t.Context(), 123*ms)
		defer cancel()
		derived := map[string]context.Context{"itself": ctx, "WithValue": context.WithValue(ctx, key(1), "one")}
		derived["WithCancel"], cancel = context.WithCancel(ctx)
		defer cancel()
		derived["WithTimeout"], cancel = context.WithTimeout(ctx, time.Hour)
		defer cancel()
		derived["WithCancel of WithValue"], cancel = context.WithCancel(derived["WithValue"])
		defer cancel()
		derived["on the wheel"], cancel = begin(ctx, time.Hour)
		defer cancel()
		derived["on the wheel, of WithValue"], cancel = begin(derived["WithValue"], time.Hour)
		defer cancel()
		for name, c := range derived {
			if got, ok := c.Deadline(); !ok || !got.Equal(start.Add(123*ms)) {
				t.Errorf("%s: the deadline is %v, %v; want 123 ms after the start", name, got.Sub(start), ok)
			}
		}
		time.Sleep(123*ms - 1)
		synctest.Wait()
		for name, c := range derived {
			wantEnd(c, t, name+", 1 ns before", nil, nil)
		}
		<-ctx.Done()
		if late := time.Since(start) - 123*ms; late < 0 || late >= 10*ms {
			t.Errorf("the context ended %v after its deadline", late)
		}
		synctest.Wait()
		for name, c := range derived {
			wantEnd(c, t, name, context.DeadlineExceeded, cause)
		}
	})
}

func TestCancelAContext(t *testing.T) {
	eachMaker(t, func(t *testing.T, begin makeFunc, _ error) {
		parent, cancelParent := context.WithCancel(t.Context())
		defer cancelParent()
		ctx, cancel := begin(parent, second)
		child, cancelChild := context.WithCancel(ctx)
		defer cancelChild()
		cancel()
		wantEnd(ctx, t, "cancelled", context.Canceled, context.Canceled) // at once
		wantEnd(child, t, "child of cancelled", context.Canceled, context.Canceled)
		cancel() // again does nothing
		time.Sleep(2 * second)
		wantEnd(ctx, t, "cancelled before its deadline", context.Canceled, context.Canceled)
		wantEnd(parent, t, "parent", nil, nil)
	})
}

// A context that has ended stays as it is, whatever comes afterwards.
func TestContextEndsOnce(t *testing.T) {
	eachMaker(t, func(t *testing.T, begin makeFunc, cause error) {
		parent, cancelParent := context.WithCancelCause(t.Context())
		ctx, cancel := begin(parent, 10*ms)
		time.Sleep(20 * ms)
		cancel()
		cancelParent(errors.New("later"))
		synctest.Wait()
		wantEnd(ctx, t, "ended", context.DeadlineExceeded, cause)
	})
}

// A cancelled parent ends the context, and everything below: Err says so at
// once, Done a moment later. The parent's cause comes down.
func TestParentEndsContext(t *testing.T) {
	errParent := errors.New("the parent's")
	eachMaker(t, func(t *testing.T, begin makeFunc, _ error) {
		parent, cancelParent := context.WithCancelCause(t.Context())
		ctx, cancel := begin(parent, time.Hour)
		defer cancel()
		child, cancelChild := context.WithCancel(context.WithValue(ctx, key(1), 1))
		defer cancelChild()
		grandchild, cancelGrandchild := begin(child, time.Minute)
		defer cancelGrandchild()
		cancelParent(errParent)
		if err := ctx.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("directly after the parent's cancel the error is %v", err)
		}
		synctest.Wait()
		for name, c := range map[string]context.Context{"context": ctx, "child": child, "grandchild": grandchild} {
			wantEnd(c, t, name, context.Canceled, errParent)
		}
	})
}

// Without anybody asking for Err, Done is closed all the same.
func TestParentEndsContextUnasked(t *testing.T) {
	eachMaker(t, func(t *testing.T, begin makeFunc, _ error) {
		parent, cancelParent := context.WithCancel(t.Context())
		ctx, cancel := begin(parent, time.Hour)
		defer cancel()
		before := time.Now()
		cancelParent()
		<-ctx.Done()
		if waited := time.Since(before); waited != 0 {
			t.Errorf("Done was closed %v after the parent's cancel", waited)
		}
	})
}

// A parent's deadline that is no later than the own one rules.
func TestEarlierDeadlineRules(t *testing.T) {
	errParent := errors.New("the parent's")
	eachMaker(t, func(t *testing.T, begin makeFunc, _ error) {
		start := time.Now()
		for name, d := range map[string]time.Duration{"later": time.Hour, "the same": 50 * ms} {
			parent, cancelParent := context.WithDeadlineCause(t.Context(), start.Add(50*ms), errParent)
			ctx, cancel := begin(parent, d-time.Since(start))
			if got, ok := ctx.Deadline(); !ok || !got.Equal(start.Add(50*ms)) {
				t.Errorf("%s: the deadline is %v, want the parent's", name, got.Sub(start))
			}
			time.Sleep(time.Until(start.Add(60 * ms)))
			synctest.Wait()
			if !ended(ctx, t) || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("%s: at the parent's deadline the error is %v", name, ctx.Err())
			}
			cancel()
			cancelParent()
			start = time.Now()
		}
		parent, cancelParent := context.WithTimeout(t.Context(), time.Hour)
		defer cancelParent()
		ctx, cancel := begin(parent, 50*ms)
		defer cancel()
		time.Sleep(60 * ms)
		if !ended(ctx, t) || ended(parent, t) {
			t.Error("with the earlier deadline the child should have ended, and not its parent")
		}
	})
}

// What is over before it begins is done at once.
func TestContextThatIsOverAtOnce(t *testing.T) {
	errParent := errors.New("the parent's")
	eachMaker(t, func(t *testing.T, begin makeFunc, cause error) {
		for _, d := range []time.Duration{0, -1, -time.Hour} {
			ctx, cancel := begin(t.Context(), d)
			wantEnd(ctx, t, "deadline in the past", context.DeadlineExceeded, cause)
			cancel()
			wantEnd(ctx, t, "cancelled after", context.DeadlineExceeded, cause)
		}
		parent, cancelParent := context.WithCancelCause(t.Context())
		cancelParent(errParent)
		for _, d := range []time.Duration{-1, time.Hour} {
			ctx, cancel := begin(parent, d)
			if !ended(ctx, t) {
				t.Error("the child of a cancelled parent is not done")
			}
			if d > 0 {
				wantEnd(ctx, t, "cancelled parent", context.Canceled, errParent)
			}
			cancel()
		}
	})
}

type key int

func TestContextValues(t *testing.T) {
	eachMaker(t, func(t *testing.T, begin makeFunc, _ error) {
		parent := context.WithValue(t.Context(), key(1), "one")
		ctx, cancel := begin(parent, time.Hour)
		defer cancel()
		child, cancelChild := begin(context.WithValue(ctx, key(2), "two"), time.Minute)
		defer cancelChild()
		for _, want := range []struct {
			ctx   context.Context
			key   any
			value any
		}{
			{ctx, key(1), "one"}, {ctx, key(2), nil}, {ctx, 1, nil},
			{child, key(1), "one"}, {child, key(2), "two"}, {child, key(3), nil},
		} {
			if got := want.ctx.Value(want.key); got != want.value {
				t.Errorf("the value of %v is %v, want %v", want.key, got, want.value)
			}
		}
	})
}

func TestContextSaysWhatItIs(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		ctx, cancel := w.WithTimeout(t.Context(), second)
		defer cancel()
		deadline, _ := ctx.Deadline()
		if s := fmt.Sprint(ctx); !strings.Contains(s, "wheel.WithDeadline") || !strings.Contains(s, deadline.String()) {
			t.Errorf("it says %q", s)
		}
		// net.Error and its like ask whether an error is a timeout.
		<-ctx.Done()
		var timeout interface{ Timeout() bool }
		if !errors.As(ctx.Err(), &timeout) || !timeout.Timeout() {
			t.Errorf("%v is no timeout", ctx.Err())
		}
	})
}

// A context without a parent that ends is on the wheel only once somebody waits for
// its end. Whichever way one looks first, it shows the same.
func TestContextThatNobodyWatches(t *testing.T) {
	looks := map[string]func(ctx context.Context) error{
		"Err":   func(ctx context.Context) error { return ctx.Err() },
		"Cause": func(ctx context.Context) error { return context.Cause(ctx) },
		"Done": func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			default:
				return nil
			}
		},
		"child": func(ctx context.Context) error {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			return child.Err()
		},
		"AfterFunc": func(ctx context.Context) error {
			ran := false
			stop := ctx.(interface{ AfterFunc(f func()) func() bool }).AfterFunc(func() { ran = true })
			synctest.Wait()
			stop()
			if !ran {
				return nil
			}
			return ctx.Err()
		},
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
				begin := func() (context.Context, context.CancelFunc) {
					return w.WithTimeoutCause(context.WithoutCancel(t.Context()), 100*ms, errLate)
				}
				over, cancel := begin()
				defer cancel()
				alive, cancelAlive := begin()
				defer cancelAlive()
				if err := look(alive); err != nil {
					t.Errorf("before its deadline: %v", err)
				}
				cancelled, end := begin()
				end()
				if err := look(cancelled); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled: %v", err)
				}
				wantEnd(cancelled, t, "cancelled", context.Canceled, context.Canceled)
				if p := w.Stats().Pending; p > 1 { // alive, after most looks
					t.Errorf("%d are pending", p)
				}
				time.Sleep(100*ms - 1)
				wantEnd(alive, t, "before its deadline", nil, nil)
				time.Sleep(time.Nanosecond)
				if err := look(over); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errLate) {
					t.Errorf("over: %v", err)
				}
				wantEnd(over, t, "over", context.DeadlineExceeded, errLate)
				time.Sleep(10 * ms)
				wantEnd(alive, t, "a tick later", context.DeadlineExceeded, errLate)
				cancelAlive()
				wantEnd(alive, t, "cancelled after its end", context.DeadlineExceeded, errLate)
			})
		})
	}
}

// What ended a context first stays, though nobody has looked meanwhile.
func TestParentEndsContextThatNobodyWatches(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		parent, end := context.WithCancelCause(t.Context())
		ctx, cancel := w.WithTimeout(parent, 100*ms)
		defer cancel()
		end(errLate)
		time.Sleep(second)
		wantEnd(ctx, t, "ended by its parent", context.Canceled, errLate)
	})
}

// A context that is watched ends on a tick, for all who ask.
func TestWatchedContextEndsOnATick(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		ctx, cancel := w.WithTimeout(context.WithoutCancel(t.Context()), 105*ms)
		defer cancel()
		ran := false
		context.AfterFunc(ctx, func() { ran = true })
		time.Sleep(105 * ms)
		wantEnd(ctx, t, "at its deadline", nil, nil)
		time.Sleep(5 * ms)
		synctest.Wait()
		wantEnd(ctx, t, "a tick later", context.DeadlineExceeded, context.DeadlineExceeded)
		if !ran {
			t.Error("what waited for its end did not run")
		}
	})
}

func TestContextWithoutParentPanics(t *testing.T) {
	eachMaker(t, func(t *testing.T, begin makeFunc, _ error) {
		if !panics(func() { begin(nil, second) }) {
			t.Error("a nil parent does not panic")
		}
	})
}

// WithoutCancel cuts the context off, as it does with the standard library's.
func TestContextWithoutCancel(t *testing.T) {
	bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
		ctx, cancel := w.WithTimeoutCause(context.WithValue(t.Context(), key(1), "one"), 10*ms, errLate)
		defer cancel()
		free := context.WithoutCancel(ctx)
		time.Sleep(second)
		if free.Err() != nil || free.Done() != nil || context.Cause(free) != nil || free.Value(key(1)) != "one" {
			t.Errorf("error %v, cause %v, value %v", free.Err(), context.Cause(free), free.Value(key(1)))
		}
		wantEnd(ctx, t, "the context itself", context.DeadlineExceeded, errLate)
	})
}

// Causes: who ends a context first gives it, and what is below takes it over.
func TestContextCauses(t *testing.T) {
	errParent, errChild := errors.New("the parent's"), errors.New("the child's")
	for _, tc := range []struct {
		name  string
		do    func(w *wheel.Wheel, root context.Context) context.Context
		err   error
		cause error
	}{
		{"nothing yet", func(w *wheel.Wheel, root context.Context) context.Context {
			ctx, _ := w.WithTimeoutCause(root, time.Minute, errLate)
			return ctx
		}, nil, nil},
		{"no cause", func(w *wheel.Wheel, root context.Context) context.Context {
			ctx, _ := w.WithTimeoutCause(root, 1, nil)
			return ctx
		}, context.DeadlineExceeded, context.DeadlineExceeded},
		{"own cause", func(w *wheel.Wheel, root context.Context) context.Context {
			ctx, _ := w.WithTimeoutCause(root, 1, errLate)
			return ctx
		}, context.DeadlineExceeded, errLate},
		{"cancelled in time", func(w *wheel.Wheel, root context.Context) context.Context {
			ctx, cancel := w.WithTimeoutCause(root, time.Minute, errLate)
			cancel()
			return ctx
		}, context.Canceled, context.Canceled},
		{"the parent first", func(w *wheel.Wheel, root context.Context) context.Context {
			parent, cancel := context.WithCancelCause(root)
			ctx, _ := w.WithTimeoutCause(parent, time.Minute, errLate)
			cancel(errParent)
			return ctx
		}, context.Canceled, errParent},
		{"the parent without a cause", func(w *wheel.Wheel, root context.Context) context.Context {
			parent, cancel := context.WithCancelCause(root)
			ctx, _ := w.WithTimeoutCause(parent, time.Minute, errLate)
			cancel(nil)
			return ctx
		}, context.Canceled, context.Canceled},
		{"the child of an expired one", func(w *wheel.Wheel, root context.Context) context.Context {
			parent, _ := w.WithTimeoutCause(root, 1, errLate)
			ctx, cancel := context.WithCancelCause(parent)
			context.AfterFunc(root, func() { cancel(nil) })
			return ctx
		}, context.DeadlineExceeded, errLate},
		{"a child that was faster", func(w *wheel.Wheel, root context.Context) context.Context {
			parent, _ := w.WithTimeoutCause(root, 1, errLate)
			ctx, cancel := context.WithCancelCause(parent)
			cancel(errChild)
			return ctx
		}, context.Canceled, errChild},
		{"the child's cancel leaves its parent alone", func(w *wheel.Wheel, root context.Context) context.Context {
			parent, _ := w.WithTimeoutCause(root, time.Minute, errLate)
			_, cancel := context.WithCancelCause(parent)
			cancel(errChild)
			return parent
		}, nil, nil},
		{"deadlines on the wheel below each other, the outer first", func(w *wheel.Wheel, root context.Context) context.Context {
			parent, _ := w.WithTimeoutCause(root, 1, errParent)
			ctx, _ := w.WithTimeoutCause(parent, time.Minute, errLate)
			return ctx
		}, context.DeadlineExceeded, errParent},
		{"deadlines on the wheel below each other, the inner first", func(w *wheel.Wheel, root context.Context) context.Context {
			parent, _ := w.WithTimeoutCause(root, time.Minute, errParent)
			ctx, _ := w.WithTimeoutCause(parent, 1, errLate)
			return ctx
		}, context.DeadlineExceeded, errLate},
		{"a deadline of the runtime's below", func(w *wheel.Wheel, root context.Context) context.Context {
			parent, _ := w.WithTimeoutCause(root, time.Minute, errParent)
			ctx, cancel := context.WithTimeoutCause(parent, 1, errLate)
			context.AfterFunc(root, cancel)
			return ctx
		}, context.DeadlineExceeded, errLate},
		{"a value between", func(w *wheel.Wheel, root context.Context) context.Context {
			parent, _ := w.WithTimeoutCause(root, 1, errLate)
			return context.WithValue(parent, key(1), 1)
		}, context.DeadlineExceeded, errLate},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
				root, cancel := context.WithCancel(t.Context())
				ctx := tc.do(w, root)
				time.Sleep(20 * ms)
				synctest.Wait()
				wantEnd(ctx, t, tc.name, tc.err, tc.cause)
				cancel() // and with it everything that is left
				synctest.Wait()
			})
		})
	}
}

// AfterFunc on a context of the wheel: it runs once, on a goroutine of its own,
// whichever way the context ends, unless it was stopped.
func TestAfterFuncOnAContext(t *testing.T) {
	eachMaker(t, func(t *testing.T, begin makeFunc, _ error) {
		ctx, cancel := begin(t.Context(), 50*ms)
		var ran, stopped atomic.Int32
		release := make(chan struct{})
		context.AfterFunc(ctx, func() { ran.Add(1); <-release })
		context.AfterFunc(ctx, func() { ran.Add(1) })
		stop := context.AfterFunc(ctx, func() { stopped.Add(1) })
		if !stop() || stop() {
			t.Error("stop should be true once")
		}
		time.Sleep(40 * ms)
		if ran.Load() != 0 {
			t.Error("it ran before the deadline")
		}
		time.Sleep(20 * ms)
		synctest.Wait()
		if ran.Load() != 2 || stopped.Load() != 0 {
			t.Errorf("%d ran and %d that were stopped, want 2 and 0", ran.Load(), stopped.Load())
		}
		context.AfterFunc(ctx, func() { ran.Add(1) }) // on one that has ended
		synctest.Wait()
		if ran.Load() != 3 {
			t.Errorf("%d ran, want 3", ran.Load())
		}
		close(release)
		cancel()

		other, cancel := begin(t.Context(), time.Hour)
		context.AfterFunc(other, func() { ran.Add(1) })
		late := context.AfterFunc(other, func() { ran.Add(1) })
		cancel()
		synctest.Wait()
		if late() || ran.Load() != 5 {
			t.Errorf("after a cancel %d ran, want 5; and nothing is left to stop", ran.Load())
		}
	})
}

// foreign is a context that is not the standard library's.
type foreign struct {
	context.Context
	done chan struct{}
	mu   sync.Mutex
	err  error
}

func newForeign(parent context.Context) *foreign {
	return &foreign{Context: parent, done: make(chan struct{})}
}

func (f *foreign) Done() <-chan struct{} { return f.done }

func (f *foreign) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *foreign) cancel(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		close(f.done)
	}
}

// A parent of another kind: its end comes down, and what was begun for it ends
// with the context (or else the bubble would complain of a goroutine).
func TestForeignParents(t *testing.T) {
	errForeign := errors.New("of another kind")
	eachMaker(t, func(t *testing.T, begin makeFunc, cause error) {
		parent := newForeign(t.Context())
		ctx, cancel := begin(parent, time.Hour)
		parent.cancel(errForeign)
		synctest.Wait()
		wantEnd(ctx, t, "the parent's end", errForeign, errForeign)
		cancel()

		parent = newForeign(t.Context())
		ctx, cancel = begin(parent, 10*ms)
		time.Sleep(20 * ms)
		wantEnd(ctx, t, "the deadline", context.DeadlineExceeded, cause)
		cancel()

		ctx, cancel = begin(parent, time.Hour)
		cancel()
		wantEnd(ctx, t, "a cancel", context.Canceled, context.Canceled)
		synctest.Wait()
	})
}

// A cancelled context is let go by its parent, by the wheel and by the runtime
// within a tick, though all of these live on; also one whose deadline Stop has
// handed over to the runtime.
func TestCancelledContextIsLetGo(t *testing.T) {
	for name, stop := range map[string]bool{"on the wheel": false, "handed over by Stop": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
				parent, cancelParent := context.WithCancel(t.Context())
				defer cancelParent()
				begin := func() (cancels chan context.CancelFunc, p weak.Pointer[payload]) {
					value := new(payload)
					ctx, cancel := w.WithTimeout(context.WithValue(parent, key(1), value), time.Hour)
					context.AfterFunc(ctx, func() {})
					cancels = make(chan context.CancelFunc, 1)
					cancels <- cancel
					return cancels, weak.Make(value)
				}
				cancels, p := begin()
				time.Sleep(50 * ms)
				if stop {
					w.Stop()
				}
				synctest.Wait()
				if gone(p) {
					t.Fatal("a context that is pending was collected")
				}
				(<-cancels)()
				time.Sleep(w.Tick())
				synctest.Wait()
				if !gone(p) {
					t.Error("a cancelled context is still held a tick later")
				}
			})
		})
	}
}

// Thousands of contexts with deadlines of their own, some cancelled in time: each
// ends as it must, when it must.
func TestManyContexts(t *testing.T) {
	bubble(t, wheel.Config{Tick: ms, Buckets: 64}, func(t *testing.T, w *wheel.Wheel) {
		rnd := newRand(t)
		var all sync.WaitGroup
		for range 2000 {
			d := ms + time.Duration(rnd.Int64N(int64(second)))
			cancelAfter := time.Duration(rnd.Int64N(int64(2 * second)))
			start := time.Now()
			ctx, cancel := w.WithTimeoutCause(t.Context(), d, errLate)
			all.Go(func() {
				defer cancel()
				select {
				case <-ctx.Done():
					if late := time.Since(start) - d; late < 0 || late >= ms {
						t.Errorf("ended %v after its deadline", late)
					}
					wantEnd(ctx, t, "the deadline", context.DeadlineExceeded, errLate)
				case <-time.After(cancelAfter):
					cancel()
					if !ended(ctx, t) || d > cancelAfter && !errors.Is(ctx.Err(), context.Canceled) {
						t.Errorf("cancelled after %v of %v: %v", cancelAfter, d, ctx.Err())
					}
				}
			})
			if rnd.IntN(10) == 0 {
				time.Sleep(ms / 3)
			}
		}
		all.Wait()
		if p := w.Stats().Pending; p != 0 {
			t.Errorf("%d pending, want none", p)
		}
	})
}

// A tree of contexts of both kinds. Whichever is ended, what is below has ended
// too, and nothing else.
func TestLayersOfContexts(t *testing.T) {
	for _, byDeadline := range []bool{false, true} {
		bubble(t, wheel.Config{}, func(t *testing.T, w *wheel.Wheel) {
			rnd := newRand(t)
			for range 20 {
				root, cancelRoot := context.WithCancel(t.Context())
				type node struct {
					ctx    context.Context
					cancel context.CancelFunc
					parent int
					short  bool
				}
				tree := []node{{root, cancelRoot, -1, false}}
				for i := 1; i < 40; i++ {
					n := node{parent: rnd.IntN(i)}
					parent := tree[n.parent].ctx
					d := time.Hour
					if n.short = byDeadline && rnd.IntN(8) == 0; n.short {
						d = 10 * ms
					}
					switch rnd.IntN(4) {
					case 0:
						n.ctx, n.cancel = context.WithTimeout(parent, d)
					case 1:
						n.ctx, n.cancel = context.WithCancel(context.WithValue(parent, key(i), i))
						n.short = false
					default:
						n.ctx, n.cancel = w.WithTimeout(parent, d)
					}
					tree = append(tree, n)
				}
				chosen := 1 + rnd.IntN(len(tree)-1)
				if byDeadline {
					chosen = -1
					time.Sleep(20 * ms)
				} else {
					tree[chosen].cancel()
				}
				synctest.Wait()
				over := make([]bool, len(tree))
				for i, n := range tree[1:] {
					over[i+1] = n.short || i+1 == chosen || over[n.parent]
					if ended(n.ctx, t) != over[i+1] {
						t.Errorf("node %d below %d: ended %v, want %v", i+1, n.parent, !over[i+1], over[i+1])
					}
				}
				cancelRoot()
				synctest.Wait()
				for i, n := range tree {
					if !ended(n.ctx, t) {
						t.Errorf("node %d outlives the root", i)
					}
					n.cancel()
				}
			}
		})
	}
}

// Two contexts that cancel each other's parents and children at the same time, on
// real time: no deadlock.
func TestInterlockedCancels(t *testing.T) {
	w := start(t, wheel.Config{Tick: ms})
	for range 500 {
		parent, cancelParent := context.WithCancel(t.Context())
		ctx, cancel := w.WithTimeout(parent, time.Minute)
		child, cancelChild := context.WithCancel(ctx)
		var all sync.WaitGroup
		all.Go(func() { <-ctx.Done(); cancelParent(); cancelChild() })
		all.Go(func() { <-child.Done(); cancelParent(); cancel() })
		all.Go(func() { <-parent.Done(); cancel(); cancelChild() })
		all.Go(cancel)
		all.Go(cancelParent)
		all.Go(cancelChild)
		all.Wait()
		<-ctx.Done()
	}
}

// Cancels, deadlines, the parent's end and readers race on real time: every
// reader sees a context that is done with an error and a cause, and that never
// changes its mind.
func TestContextsRace(t *testing.T) {
	w := start(t, wheel.Config{Tick: ms})
	rnd := newRand(t)
	for range 300 {
		parent, cancelParent := context.WithCancelCause(t.Context())
		ctx, cancel := w.WithTimeoutCause(parent, time.Duration(rnd.Int64N(int64(3*ms))), errLate)
		pause := time.Duration(rnd.Int64N(int64(3 * ms)))
		var all sync.WaitGroup
		var first atomic.Pointer[error]
		for range 3 {
			all.Go(func() {
				child, cancelChild := context.WithCancel(ctx)
				defer cancelChild()
				<-ctx.Done()
				err := ctx.Err()
				if err == nil || context.Cause(ctx) == nil {
					t.Errorf("done with error %v and cause %v", err, context.Cause(ctx))
				}
				if !first.CompareAndSwap(nil, &err) && !errors.Is(err, *first.Load()) {
					t.Errorf("one reader saw %v, another %v", *first.Load(), err)
				}
				<-child.Done()
				if child.Err() == nil {
					t.Error("the child is done without an error")
				}
			})
		}
		all.Go(func() { time.Sleep(pause); cancel() })
		all.Go(func() { time.Sleep(pause); cancelParent(errors.New("the parent's")) })
		all.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(100 * time.Microsecond)
			}
			select {
			case <-ctx.Done():
			default:
				t.Error("Err says that it has ended, Done does not")
			}
		})
		all.Wait()
	}
}
