package lock

import (
	"container/list"
	"sync"
)

// pool does tasks on goroutines that live no longer than there are tasks. Each group of the
// store, which may fail alone, has a queue and goroutines of its own, so that one that does
// not answer delays no task of another. See [renewal.Renewer] for groups.
type pool[T placed] struct {
	mu      *sync.Mutex         // guards the pool, and the places of its tasks
	limit   func() int          // on the goroutines of one group; called with mu
	group   func(task T) string // called without mu; nil if all tasks are in one group
	enqueue func(task T)        // puts a task, whose group has changed, into its pool; called with mu
	do      func(task T)        // called without mu
	begin   func(work func())   // begins a goroutine, and counts it
	freed   func()              // called with mu when a task is done; may be nil

	queues map[string]*groupQueue // by group; those with tasks or goroutines
	tasks  int                    // that are queued, or being done
}

// groupQueue has the tasks of one group that wait for a goroutine.
type groupQueue struct {
	group   string
	tasks   list.List
	running int // goroutines; those above the limit end before they take another task
}

// placed is a task that knows its place.
type placed interface{ at() *place }

// place is where a task is in its pool.
type place struct {
	group   string        // the latest that was known; the store's topology may change
	queue   *groupQueue   // nil unless the task is queued
	element *list.Element // of queue
}

// put queues a task in its group. The caller holds mu.
func (p *pool[T]) put(task T) {
	at := task.at()
	q := p.queues[at.group]
	if q == nil {
		q = &groupQueue{group: at.group}
		if p.queues == nil {
			p.queues = make(map[string]*groupQueue)
		}
		p.queues[at.group] = q
	}
	at.queue, at.element = q, q.tasks.PushBack(task)
	p.tasks++
	p.start(q)
}

// remove takes a queued task out. The caller holds mu.
func (p *pool[T]) remove(task T) {
	at := task.at()
	at.queue.tasks.Remove(at.element)
	p.drop(at.queue)
	at.queue, at.element = nil, nil
	p.tasks--
}

// start begins another goroutine for a queue with tasks, up to the limit. The caller holds mu.
func (p *pool[T]) start(q *groupQueue) {
	if q.tasks.Len() > 0 && q.running < p.limit() {
		q.running++
		p.begin(func() { p.work(q) })
	}
}

// resume is called when the limit has risen by one. The caller holds mu.
func (p *pool[T]) resume() {
	for _, q := range p.queues {
		p.start(q)
	}
}

// work is one goroutine of a group.
func (p *pool[T]) work(q *groupQueue) {
	exited := true
	defer func() {
		if exited { // a task's runtime.Goexit must not cost a goroutine
			p.begin(func() { p.work(q) })
		}
	}()
	for task, ok := p.take(q); ok; task, ok = p.take(q) {
		p.doOne(q, task)
	}
	exited = false
}

// take takes a task out of the queue. Without one it ends the goroutine.
func (p *pool[T]) take(q *groupQueue) (task T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := q.tasks.Front()
	if first == nil || q.running > p.limit() {
		q.running--
		p.drop(q)
		return task, false
	}
	task = q.tasks.Remove(first).(T)
	at := task.at()
	at.queue, at.element = nil, nil
	return task, true
}

// doOne does a task, or moves it to its present group.
func (p *pool[T]) doOne(q *groupQueue, task T) {
	group := ""
	if p.group != nil {
		group = p.group(task)
	}
	defer func() { // also after runtime.Goexit
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tasks--
		if group != q.group {
			task.at().group = group
			p.enqueue(task)
		} else if p.freed != nil {
			p.freed()
		}
	}()
	if group == q.group {
		p.do(task)
	}
}

// drop forgets an idle queue. The caller holds mu.
func (p *pool[T]) drop(q *groupQueue) {
	if q.running == 0 && q.tasks.Len() == 0 {
		delete(p.queues, q.group)
	}
}

// queued returns the tasks that wait for a goroutine. The caller holds mu.
func (p *pool[T]) queued() (tasks []T) {
	for _, q := range p.queues {
		for e := q.tasks.Front(); e != nil; e = e.Next() {
			tasks = append(tasks, e.Value.(T))
		}
	}
	return tasks
}
