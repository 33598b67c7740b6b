package lock

import (
	"container/list"
	"sync"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// pool does tasks on goroutines that live no longer than there are tasks. Each group of the
// store, which may fail alone, has a queue and goroutines of its own, so that one that does
// not answer delays no task of another. See [renewal.Renewer] for groups.
type pool struct {
	mu    *sync.Mutex                                // guards the pool and its tasks
	limit func() int                                 // on the goroutines of one group; called with mu
	group func(name string, kind driver.Kind) string // called with mu
	begin func(work func())                          // begins a goroutine, and counts it
	freed func()                                     // called with mu when a task is done; may be nil

	queues map[string]*taskQueue // by group; those with tasks or goroutines
	tasks  int                   // that are queued, or being done
}

// taskQueue has the tasks of one group that wait for a goroutine.
type taskQueue struct {
	pool    *pool
	group   string
	tasks   list.List // of *task
	running int       // goroutines; those above the limit end after their task
}

// task is work that concerns one lock. It is in one pool at a time.
type task struct {
	name string
	kind driver.Kind
	do   func() // called without mu
	// ended is called with mu after do, when its goroutine is free again; may be nil.
	ended func()
	first bool // it goes before those that are queued

	queue   *taskQueue // nil unless the task is queued
	element *list.Element
}

func (t *task) init(name string, kind driver.Kind, do func()) { t.name, t.kind, t.do = name, kind, do }

// put queues a task in its group. The caller holds mu.
func (p *pool) put(t *task) {
	group := p.group(t.name, t.kind)
	q := p.queues[group]
	if q == nil {
		q = &taskQueue{pool: p, group: group}
		if p.queues == nil {
			p.queues = make(map[string]*taskQueue)
		}
		p.queues[group] = q
	}
	t.queue, t.element = q, q.tasks.PushBack(t)
	if t.first {
		q.tasks.MoveToFront(t.element)
	}
	p.tasks++
	p.start(q)
}

// remove takes a queued task out. The caller holds mu.
func (p *pool) remove(t *task) {
	q := t.queue
	q.tasks.Remove(t.element)
	t.queue, t.element = nil, nil
	p.tasks--
	p.drop(q)
}

// start begins goroutines for queued tasks, up to the limit. The caller holds mu.
func (p *pool) start(q *taskQueue) {
	for t := p.next(q); t != nil; t = p.next(q) {
		p.begin(func() { p.work(q, t) })
	}
}

// next takes the first task for a goroutine that is counted from now on, unless there is none, or
// no room. A task that has a goroutine is not queued, so that none waits behind it. The caller
// holds mu.
func (p *pool) next(q *taskQueue) *task {
	for q.tasks.Len() > 0 && q.running < p.limit() {
		t := q.tasks.Front().Value.(*task)
		group := p.group(t.name, t.kind) // the task stays queued if the store ends this goroutine
		q.tasks.Remove(t.element)
		t.queue, t.element = nil, nil
		if group == q.group {
			t.first = false
			q.running++
			return t
		}
		p.tasks-- // the store's topology has changed
		p.put(t)
	}
	p.drop(q)
	return nil
}

// resume is called when the limit has risen. The caller holds mu.
func (p *pool) resume() {
	for _, q := range p.queues {
		p.start(q)
	}
}

// work is one goroutine of a group.
func (p *pool) work(q *taskQueue, t *task) {
	for t != nil {
		t = p.do(q, t)
	}
}

// do does a task, and takes the next one.
func (p *pool) do(q *taskQueue, t *task) (next *task) {
	exited := true
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tasks--
		q.running--
		if p.freed != nil {
			p.freed()
		}
		if t.ended != nil {
			t.ended()
		}
		if exited { // a task's runtime.Goexit must not cost a goroutine
			p.start(q)
		} else {
			next = p.next(q)
		}
	}()
	t.do()
	exited = false
	return nil
}

// drop forgets an idle queue. The caller holds mu.
func (p *pool) drop(q *taskQueue) {
	if q.running == 0 && q.tasks.Len() == 0 {
		delete(p.queues, q.group)
	}
}

// group returns the group of the store that a lock is in. It is called with mutexes held, or with locks
// left to release: a panic, as of a user's function for keys, is logged.
func (l *Locker) group(name string, kind driver.Kind) (group string) {
	_ = l.protect("Store.Group", name, func() error {
		group = l.store.Group(name, kind)
		return nil
	})
	return group
}
