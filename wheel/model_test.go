package wheel_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
	"github.com/leasewheel/leasewheel/wheel"
)

// A model is the most naive timer, a list of items with deadlines. It drives a whole
// wheel in virtual time through operations that are read from bytes, from outside and
// from inside of tasks. It predicts the result of each and when each task runs, to the
// nanosecond, and compares the whole observable state of the wheel after each step.
type model struct {
	t     *testing.T
	w     *wheel.Wheel
	start time.Time
	tick  time.Duration
	limit int

	mu      sync.Mutex // tasks run on the worker
	items   []*item
	stopped bool
	left    []wheel.Unrun // what Stop has returned
	runs    uint64
	running *item  // the periodic item whose task runs
	ends    uint64 // runs that ended badly
}

// kind is how an item was scheduled.
type kind byte

const (
	oneShot  kind = iota // Schedule, ScheduleAt
	given                // ScheduleFunc
	embedded             // Timer
	periodic             // Every
	kinds
)

// An item is a timeout of the model.
type item struct {
	kind    kind
	name    int
	handle  timeout.Timeout
	timer   *wheel.Timer
	pending bool
	over    bool          // it was cancelled or returned
	due     time.Duration // since the start, whole ticks
	set     time.Duration // when due was set: a due time before that means at once
	period  time.Duration
	missed  wheel.Missed
	plan    time.Duration // of a periodic item: due before it was rounded
	program []op          // what its task does
	fuel    int           // how often it still does that
}

// An op is one operation.
type op struct {
	code    byte
	a, b    byte
	program []op // of what it schedules
}

// The codes. (*model).do has their meaning.
const (
	opSchedule = iota
	opScheduleAt
	opFunc
	opTimer
	opEvery
	opCancel
	opReset
	opResetAt
	opLook
	opBurst
	opCancelAll
	opEnd // of the task, by a panic or runtime.Goexit
	opDrain
	opStop
	opCodes
)

// decode reads operations from bytes: code, two operands, and for what schedules
// a task how many operations that does, and those.
func decode(bytes *[]byte, count, depth int) []op {
	var ops []op
	for len(*bytes) >= 3 && len(ops) < count {
		o := op{code: (*bytes)[0] % opCodes, a: (*bytes)[1], b: (*bytes)[2]}
		// Stop ends everything interesting, so it is rarer than the rest.
		if o.code == opStop && (*bytes)[0] < 200 {
			o.code = opReset
		}
		*bytes = (*bytes)[3:]
		if o.code <= opEvery && depth < 3 && len(*bytes) > 0 {
			n := int((*bytes)[0] % 4)
			*bytes = (*bytes)[1:]
			o.program = decode(bytes, n, depth+1)
		}
		ops = append(ops, o)
	}
	return ops
}

// elapsed returns the time since the wheel's start.
func (m *model) elapsed() time.Duration { return time.Since(m.start) }

// ceil rounds up to a tick.
func (m *model) ceil(d time.Duration) time.Duration {
	return (max(d, 0) + m.tick - 1) / m.tick * m.tick
}

// due returns the tick for a deadline: the next one for a deadline in the past.
func (m *model) due(d time.Duration) time.Duration {
	return max(m.ceil(d), m.elapsed()/m.tick*m.tick+m.tick)
}

// delay makes a delay of an operand: below a tick, some ticks, about a number of
// revolutions of 16 buckets, or far away; negative ones too.
func (m *model) delay(a byte) time.Duration {
	n := time.Duration(a >> 3)
	switch a & 7 {
	case 0:
		return -n * m.tick
	case 1:
		return n * m.tick / 32
	case 2, 3:
		return n * m.tick
	case 4:
		return (n/4*16 + n%4 - 1) * m.tick
	case 5:
		return n*3*m.tick + m.tick/3
	case 6:
		return n * n * m.tick
	}
	return n * time.Hour
}

func (m *model) pendings() (n int) {
	for _, i := range m.items {
		if i.pending {
			n++
		}
	}
	return n
}

// refusal returns the error for scheduling something new.
func (m *model) refusal() error {
	switch {
	case m.stopped:
		return wheel.ErrStopped
	case m.limit != 0 && m.pendings() >= m.limit:
		return wheel.ErrFull
	}
	return nil
}

func (m *model) errorf(format string, args ...any) {
	m.t.Errorf("at %v: %s", m.elapsed(), fmt.Sprintf(format, args...))
}

// pick returns the item that an operand selects, preferably a pending one.
func (m *model) pick(a byte) *item {
	if len(m.items) == 0 {
		return nil
	}
	if a < 200 {
		var pending []*item
		for _, i := range m.items {
			if i.pending {
				pending = append(pending, i)
			}
		}
		if len(pending) > 0 {
			return pending[int(a)%len(pending)]
		}
	}
	return m.items[int(a)%len(m.items)]
}

// do does an operation, on the wheel and in the model. self is the item whose
// task does it, nil outside.
func (m *model) do(o op, self *item) {
	d := m.delay(o.a)
	switch o.code {
	case opSchedule:
		m.schedule(&item{kind: oneShot, program: o.program}, d, false)
	case opScheduleAt:
		m.schedule(&item{kind: oneShot, program: o.program}, d, true)
	case opFunc:
		m.schedule(&item{kind: given, program: o.program}, d, false)
	case opTimer:
		m.schedule(&item{kind: embedded, program: o.program}, d, o.b&1 == 1)
	case opEvery:
		period := m.tick + time.Duration(o.a)*m.tick/8
		m.schedule(&item{kind: periodic, program: o.program, period: period, missed: wheel.Missed(o.b % 3)}, period, false)
	case opCancel:
		if i := m.pick(o.b); i != nil {
			m.cancel(i)
		}
	case opReset, opResetAt:
		i := m.pick(o.b)
		if o.b >= 240 && self != nil {
			i = self
		}
		if i != nil {
			m.reset(i, d, o.code == opResetAt && i.kind != periodic)
		}
	case opLook:
		m.look()
	case opBurst:
		for range int(o.b) {
			m.schedule(&item{kind: kind(o.b % byte(periodic))}, d, false)
		}
	case opCancelAll:
		for n, i := range m.items {
			if n%(int(o.a%3)+1) == 0 {
				m.cancel(i)
			}
		}
	case opEnd: // see run
	case opDrain:
		if o.b < 16 {
			m.returned("Drain", m.w.Drain())
		}
	case opStop:
		m.stop()
	}
}

func (m *model) schedule(i *item, d time.Duration, at bool) {
	if len(m.items) >= 1000 || i.kind == periodic && m.countPeriodic() >= 3 {
		return // the model is slow, and a periodic task runs often
	}
	want := m.refusal()
	now := m.elapsed()
	i.name, i.fuel, i.set = len(m.items), 3, now
	i.due = m.due(now + d)
	i.plan = now + d
	var err error
	switch i.kind {
	case oneShot:
		if at {
			i.handle, err = m.w.ScheduleAt(time.Now().Add(d), func() { m.run(i, timeout.Timeout{}) })
		} else {
			i.handle, err = m.w.Schedule(d, func() { m.run(i, timeout.Timeout{}) })
		}
	case given:
		i.handle, err = m.w.ScheduleFunc(d, func(h timeout.Timeout) {
			m.run(i, h)
		})
	case embedded:
		i.timer = new(wheel.Timer)
		i.timer.Init(m.w, func() { m.run(i, timeout.Timeout{}) })
		if at {
			_, err = i.timer.ArmAt(time.Now().Add(d))
		} else {
			_, err = i.timer.Arm(d)
		}
		i.handle = i.timer.Timeout()
	case periodic:
		i.handle, err = m.w.Every(i.period, i.missed, func() { m.run(i, timeout.Timeout{}) })
	}
	if !errors.Is(err, want) {
		m.errorf("scheduling %d: %v, want %v", i.name, err, want)
	}
	i.pending = want == nil
	if want == nil || i.kind == embedded { // a refused timer can be armed later
		m.items = append(m.items, i)
	}
}

func (m *model) countPeriodic() (n int) {
	for _, i := range m.items {
		if i.kind == periodic {
			n++
		}
	}
	return n
}

func (m *model) cancel(i *item) {
	// A run of a periodic task that is under way has begun.
	if got, want := i.handle.Cancel(), i.pending && i != m.running; got != want {
		m.errorf("cancel of %d: %v, want %v", i.name, got, want)
	}
	i.pending, i.over = false, true
}

// armed checks the result of Arm.
func (m *model) armed(i *item, pending bool) func(was bool, err error) bool {
	return func(was bool, err error) bool {
		if was != (pending && err == nil) {
			m.errorf("Arm of %d says that it was pending: %v, want %v", i.name, was, pending)
		}
		return err == nil
	}
}

func (m *model) reset(i *item, d time.Duration, at bool) {
	pending := i.pending
	now := m.elapsed()
	final := i.kind == oneShot || i.over && i.kind != embedded
	want := i.pending || !final && m.refusal() == nil
	want = want && !m.stopped
	var got bool
	due := m.due(now + d)
	switch {
	case at && i.kind == embedded:
		got = m.armed(i, pending)(i.timer.ArmAt(time.Now().Add(d)))
	case at:
		got = i.handle.ResetAt(time.Now().Add(d))
	case i.kind == embedded:
		got = m.armed(i, pending)(i.timer.Arm(d))
	default:
		got = i.handle.Reset(d)
	}
	if got != want {
		m.errorf("reset of %d: %v, want %v", i.name, got, want)
	}
	if want {
		i.pending, i.due, i.set = true, due, now
	}
}

func (m *model) stop() {
	left := m.w.Stop()
	if m.stopped {
		if left != nil {
			m.errorf("the second Stop returned %d", len(left))
		}
		return
	}
	m.stopped, m.left = true, left
	m.returned("Stop", left)
}

// returned checks the result of Stop or Drain: everything that was pending.
func (m *model) returned(by string, left []wheel.Unrun) {
	if !slices.IsSortedFunc(left, func(a, b wheel.Unrun) int { return a.Deadline.Compare(b.Deadline) }) {
		m.errorf("%s returned timeouts out of order", by)
	}
	if n := m.pendings(); n != len(left) {
		m.errorf("%s returned %d, want %d", by, len(left), n)
	}
	for _, u := range left {
		n := slices.IndexFunc(m.items, func(i *item) bool { return i.handle == u.Timeout })
		if n < 0 || !m.items[n].pending || !u.Deadline.Equal(m.start.Add(m.items[n].due)) {
			m.errorf("%s returned a timeout due at %v that is not", by, u.Deadline.Sub(m.start))
			continue
		}
		m.items[n].pending, m.items[n].over = false, true
	}
}

// run is the task of every item; one that receives its own timeout passes it on.
func (m *model) run(i *item, given timeout.Timeout) {
	end := func() bool { return false }
	defer func() {
		if end() {
			runtime.Goexit()
		}
	}()
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.elapsed()
	m.runs++
	if given != (timeout.Timeout{}) && given != i.handle {
		m.errorf("%d is given another handle than its own", i.name)
	}
	if !i.pending {
		m.errorf("%d ran, which is not pending", i.name)
	}
	if want := max(i.due, i.set); now != want {
		m.errorf("%d ran, which is due at %v", i.name, want)
	}
	if i.kind == periodic {
		m.running = i
		defer func() { m.running = nil }()
		m.repeat(i, now)
	} else {
		i.pending = false
	}
	if i.fuel == 0 {
		return
	}
	i.fuel--
	for _, o := range i.program {
		m.do(o, i)
		if o.code == opEnd {
			m.ends++
			if o.a&1 == 1 {
				panic("the task of a model")
			}
			end = func() bool { return true }
			return
		}
	}
}

// repeat plans the next run of a periodic item.
func (m *model) repeat(i *item, now time.Duration) {
	plan := i.plan
	if i.due != m.ceil(plan) {
		plan = i.due // it was reset
	}
	if i.missed == wheel.Delay {
		plan = now
	}
	i.plan = plan + i.period
	i.due, i.set = m.ceil(i.plan), now
}

// look compares the observable state of the wheel with the model.
func (m *model) look() {
	for _, i := range m.items {
		state, deadline := i.handle.State(), i.handle.Deadline()
		switch {
		case (state == timeout.Pending) != i.pending:
			m.errorf("%d is %v, want pending %v", i.name, state, i.pending)
		case i.pending && !deadline.Equal(m.start.Add(i.due)):
			m.errorf("%d is due at %v, want %v", i.name, deadline.Sub(m.start), i.due)
		case !i.pending && !deadline.IsZero():
			m.errorf("%d, which is not pending, is due at %v", i.name, deadline.Sub(m.start))
		}
	}
	s := m.w.Stats()
	if s.Pending != int64(m.pendings()) || s.Fired != m.runs || s.LastLag != 0 || s.WorstLag != 0 {
		m.errorf("%d are pending and %d ran; the numbers are %+v", m.pendings(), m.runs, s)
	}
}

// pass lets virtual time pass until the middle of a tick, so that no operation from
// outside coincides with a deadline. By then everything due has run.
func (m *model) pass(ticks int) {
	until := (m.elapsed()/m.tick+time.Duration(ticks))*m.tick + m.tick/2
	pass(until - m.elapsed())
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.items {
		if i.pending && max(i.due, i.set) <= m.elapsed() {
			m.errorf("%d, due at %v, has not run", i.name, i.due)
		}
	}
	m.look()
}

// checkModel drives a wheel and its model by the bytes.
func checkModel(t *testing.T, bytes []byte) {
	if len(bytes) < 2 {
		return
	}
	shape := bytes[0]
	bytes = bytes[1:]
	synctest.Test(t, func(t *testing.T) {
		m := &model{t: t, start: time.Now(), tick: 8 * ms, limit: int(shape>>4&3) * 10}
		m.w = start(t, wheel.Config{
			Tick:       m.tick,
			Buckets:    []int{1, 4, 16, 64}[shape&3],
			MaxPending: int64(m.limit),
		})
		m.pass(int(shape >> 6))
		for len(bytes) >= 3 && !t.Failed() {
			// A byte before each operation from outside: how long it is
			// put off.
			wait := int(bytes[0])
			bytes = bytes[1:]
			synctest.Wait() // for what runs at once
			switch {
			case wait < 64:
			case wait < 128:
				m.pass(wait & 7)
			case wait < 250:
				m.pass(wait & 63)
			default:
				m.pass(wait * 3)
			}
			for _, o := range decode(&bytes, 1, 0) {
				m.mu.Lock()
				m.do(o, nil)
				m.mu.Unlock()
			}
		}
		m.pass(40)
		m.mu.Lock()
		m.stop()
		m.mu.Unlock()
		m.pass(1)
		for _, i := range m.items {
			check(t, i.handle.State() != timeout.Pending && !i.handle.Cancel() && !i.handle.Reset(0),
				"%d lives on in a stopped wheel", i.name)
		}
		s := m.w.Stats()
		check(t, s.Panics == m.ends, "%d tasks ended badly; the numbers are %+v", m.ends, s)
	})
}

func TestWheelAgainstModel(t *testing.T) {
	rnd := newRand(t)
	for n := range 80 {
		seed := rnd.Uint64()
		require(t, t.Run(fmt.Sprint(n), func(t *testing.T) { checkModel(t, randomBytes(seed, 600)) }),
			"bytes of seed %d", seed)
	}
}

func randomBytes(seed uint64, longest int) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	bytes := make([]byte, 2+r.IntN(longest))
	for i := range bytes {
		bytes[i] = byte(r.Uint32())
	}
	return bytes
}

// FuzzWheel reads operations from bytes; see model. Of 150 seeds these reach every statement
// that all of them reach.
func FuzzWheel(f *testing.F) {
	for _, seed := range []uint64{1, 2, 69, 74, 86, 93, 103} {
		f.Add(randomBytes(seed, 1200))
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		checkModel(t, bytes[:min(len(bytes), 1500)])
	})
}
