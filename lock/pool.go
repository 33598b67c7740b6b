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
	running int       // goroutines; those above the limit end before they take another task
}

// task is work that concerns one lock. It is in one pool at a time.
type task struct {
	name string
	kind driver.Kind
	do   func() // called without mu

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

// start begins another goroutine for a queue with tasks, up to the limit. The caller holds mu.
func (p *pool) start(q *taskQueue) {
	if q.tasks.Len() > 0 && q.running < p.limit() {
		q.running++
		p.begin(func() { p.work(q) })
	}
}

// resume is called when the limit has risen by one. The caller holds mu.
func (p *pool) resume() {
	for _, q := range p.queues {
		p.start(q)
	}
}

// work is one goroutine of a group.
func (p *pool) work(q *taskQueue) {
	exited := true
	defer func() {
		if exited { // a task's runtime.Goexit must not cost a goroutine
			p.begin(func() { p.work(q) })
		}
	}()
	for t := p.take(q); t != nil; t = p.take(q) {
		p.do(t)
	}
	exited = false
}

// take takes a task out of the queue. Without one it ends the goroutine.
func (p *pool) take(q *taskQueue) *task {
	p.mu.Lock()
	defer p.mu.Unlock()
	for q.tasks.Len() > 0 && q.running <= p.limit() {
		t := q.tasks.Front().Value.(*task)
		group := p.group(t.name, t.kind) // the task stays queued if the store ends this goroutine
		q.tasks.Remove(t.element)
		t.queue, t.element = nil, nil
		if group == q.group {
			return t
		}
		p.tasks-- // the store's topology has changed
		p.put(t)
	}
	q.running--
	p.drop(q)
	return nil
}

// do does a task.
func (p *pool) do(t *task) {
	defer func() { // also after runtime.Goexit
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tasks--
		if p.freed != nil {
			p.freed()
		}
	}()
	t.do()
}

// drop forgets an idle queue. The caller holds mu.
func (p *pool) drop(q *taskQueue) {
	if q.running == 0 && q.tasks.Len() == 0 {
		delete(p.queues, q.group)
	}
}
