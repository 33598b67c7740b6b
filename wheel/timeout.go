package wheel

import "github.com/leasewheel/leasewheel/timeout"

// Timeout is the handle of a scheduled task: a small value that may be copied, compared and
// kept for ever. Its zero value is inert. Its methods Cancel, Reset, SetPeriod, State
// and Deadline are safe for concurrent use; see [timeout.Timeout].
type Timeout = timeout.Timeout

// State is the state of a [Timeout] or a [Timer].
type State = timeout.State

// The states are described in package timeout.
const (
	Idle      = timeout.Idle
	Pending   = timeout.Pending
	Expired   = timeout.Expired
	Cancelled = timeout.Cancelled
	Done      = timeout.Done
)
