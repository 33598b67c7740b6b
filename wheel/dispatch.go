package wheel

import (
	"errors"
	"sync/atomic"
)

// errInterrupted is why a task is rejected whose executor did not return.
var errInterrupted = errors.New("wheel: Execute panicked or called runtime.Goexit")

// A revocable is what the worker passes to an executor: one run of a task. Either the
// executor begins that run or the worker revokes it.
type revocable interface {
	// revoke returns the task for [Config.OnReject]. ok is false if the run has begun. If
	// it is true, the run never begins.
	revoke() (task func(), ok bool)
}

// dispatch passes a run to the executor.
func (w *Wheel) dispatch(r revocable, run func()) {
	w.current = r
	err := w.executor.Execute(run)
	w.current = nil // first: OnReject may panic
	if err != nil {
		w.revoke(r, err)
	}
}

// revoke rejects a run that the executor has not begun.
func (w *Wheel) revoke(r revocable, err error) {
	if task, ok := r.revoke(); ok {
		w.rejected(task, err)
	}
}

// A dispatched is the run of a one-shot task on an executor of a user's, which may panic
// whether or not it has begun the task. It costs 70 ns and 32 B in two allocations, which
// the executors of this package are spared.
type dispatched struct {
	task func()
	once atomic.Bool // it has begun or was revoked
}

func (d *dispatched) run() {
	if !d.once.Swap(true) {
		d.task()
	}
}

func (d *dispatched) revoke() (task func(), ok bool) { return d.task, !d.once.Swap(true) }

// foreign reports whether an executor is not one of this package's, which never panic.
func foreign(e Executor) bool {
	switch e.(type) {
	case nil, goroutines, *Pool:
		return false
	}
	return true
}
