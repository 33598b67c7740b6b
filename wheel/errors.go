package wheel

import "errors"

var (
	// ErrStopped is returned for scheduling on a wheel after [Wheel.Stop] has begun. The
	// task is not, and will not be, run.
	ErrStopped = errors.New("wheel: stopped")

	// ErrFull is returned when [Config.MaxPending] timeouts are pending already. The task
	// is not, and will not be, run. Running or cancelling another timeout makes room
	// again.
	ErrFull = errors.New("wheel: MaxPending timeouts are pending")
)
