package wheel

import "errors"

var (
	// ErrStopped is returned for what is scheduled on a wheel after
	// [Wheel.Stop] has begun. The task is not, and will not be, run.
	ErrStopped = errors.New("wheel: stopped")

	// ErrFull is returned when as many timeouts are pending as
	// [Config.MaxPending] allows. The task is not, and will not be, run;
	// there is room again once another one was run or cancelled.
	ErrFull = errors.New("wheel: as many timeouts pending as MaxPending allows")
)
