package timeout

// State is the state of a timeout.
type State uint8

const (
	// Idle is a timeout that was never scheduled; the zero [Timeout] is idle.
	Idle State = iota
	// Pending is a timeout whose task is still to run.
	Pending
	// Expired is a timeout whose task has begun, or waits in the queue of an executor that
	// has accepted it.
	Expired
	// Cancelled is a timeout that was cancelled, or that a wheel returned when it stopped
	// or was drained.
	Cancelled
	// Done is a timeout that has expired or was cancelled, and whose memory serves
	// another one by now, so that its end is no longer known. Timers and periodic tasks
	// keep their memory and are never Done.
	Done
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Idle:
		return "idle"
	case Pending:
		return "pending"
	case Expired:
		return "expired"
	case Cancelled:
		return "cancelled"
	case Done:
		return "done"
	}
	return "invalid"
}

// A Tick counts ticks since its engine's start. Only the engine converts time to ticks,
// and it rounds up.
type Tick int64

// MaxTick is the last tick that a deadline can name: 2⁴⁸−1, which is 892 years
// at the smallest tick, 100 µs, and so beyond what a [time.Duration] spans.
const MaxTick Tick = 1<<tickBits - 1

// The word packs, from the top: the deadline's tick, the low bits of the life, and the
// phase. Deadline and phase change together or not at all: one compare-and-swap decides
// between a concurrent reset and expiry.
//
// The life's low bits protect a compare-and-swap that is delayed between reading the life
// and swapping. To mistake a later life for its own, the delay would have to span a
// multiple of 2¹⁴ lives that ends on the same deadline.
const (
	tickBits  = 48
	lifeBits  = 14
	phaseBits = 2

	tickShift = lifeBits + phaseBits
	lifeMask  = (1<<lifeBits - 1) << phaseBits
	phaseMask = 1<<phaseBits - 1
)

// The phases of an entry.
const (
	idle = iota
	pending
	expired
	cancelled
)

// states of the phases.
var states = [...]State{idle: Idle, pending: Pending, expired: Expired, cancelled: Cancelled}

// A word is one value of an entry's state word.
type word uint64

func pack(tick Tick, life uint64, phase word) word {
	return word(tick)<<tickShift | word(life<<phaseBits)&lifeMask | phase
}

func (w word) phase() word { return w & phaseMask }
func (w word) tick() Tick  { return Tick(w >> tickShift) }

// withPhase and withTick keep everything else of the word.
func (w word) withPhase(phase word) word { return w&^phaseMask | phase }
func (w word) withTick(t Tick) word      { return w&(1<<tickShift-1) | word(t)<<tickShift }
