package wheel

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// An Executor runs the tasks of a wheel elsewhere than on its worker. Execute is called
// by the worker and must not block. An error means that the executor has not accepted the
// task and will never run it. So does a panic, which is logged; the function that Execute was
// given then does nothing, unless it has begun.
type Executor interface {
	Execute(task func()) error
}

// Goroutines is an [Executor] that runs every task on a goroutine of its own, as
// time.AfterFunc does. It refuses none: a burst of tasks is a burst of goroutines. A task
// that panics ends the program, as in any goroutine.
var Goroutines Executor = goroutines{}

type goroutines struct{}

func (goroutines) Execute(task func()) error {
	go task()
	return nil
}

var (
	// ErrPoolFull is returned by a [Pool] whose queue has no room for a task.
	ErrPoolFull = errors.New("wheel: the pool's queue is full")
	// ErrPoolClosed is returned by a [Pool] after Close.
	ErrPoolClosed = errors.New("wheel: the pool is closed")
)

// A Pool is an [Executor] with a fixed number of goroutines and a queue of fixed length in front
// of them; [NewPool] makes it. One pool can serve several wheels. A task that panics ends the
// program, as in any goroutine.
type Pool struct {
	tasks   chan func()
	workers sync.WaitGroup
	// room is how many more tasks are accepted: one for each idle worker and each free
	// place in the queue. tasks holds them all, so a worker that has not yet come for its
	// first task counts as idle too.
	room atomic.Int64

	mu     sync.RWMutex // held for reading while a task is put into the queue
	closed bool
}

// NewPool starts a pool of workers, 1 to 65,536, with a queue of 0 to
// 16,777,216 tasks. It panics on other numbers.
func NewPool(workers, queue int) *Pool {
	if workers < 1 || workers > 1<<16 || queue < 0 || queue > 1<<24 {
		panic(fmt.Sprintf("wheel: NewPool of %d workers and a queue of %d; want 1 to %d and 0 to %d",
			workers, queue, 1<<16, 1<<24))
	}
	p := &Pool{tasks: make(chan func(), workers+queue)}
	p.room.Store(int64(workers + queue))
	for range workers {
		p.workers.Go(p.work)
	}
	return p
}

// work runs tasks until the pool is closed and the queue is empty.
func (p *Pool) work() {
	closed := false
	defer func() {
		if !closed { // a task called runtime.Goexit; replace the worker that it ended
			p.workers.Go(p.work)
		}
	}()
	for task := range p.tasks {
		p.run(task)
	}
	closed = true
}

func (p *Pool) run(task func()) {
	defer p.room.Add(1) // also after runtime.Goexit
	task()
}

// Execute implements [Executor]. It fails with [ErrPoolFull] or [ErrPoolClosed];
// [Config.OnReject] can run such a task elsewhere.
func (p *Pool) Execute(task func()) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return ErrPoolClosed
	}
	for {
		room := p.room.Load()
		if room == 0 {
			return ErrPoolFull
		}
		if p.room.CompareAndSwap(room, room-1) {
			p.tasks <- task // does not block
			return nil
		}
	}
}

// Close refuses further tasks, runs the queued ones, and waits for all of them. Stop the
// wheel first. Close may be called twice, but not from inside a task.
func (p *Pool) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.tasks)
	}
	p.mu.Unlock()
	p.workers.Wait()
}
