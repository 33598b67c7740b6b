//go:build unix

package contention

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

// HandOver measures one lock among waiters that request it again as soon as they have
// released it.
type HandOver struct {
	Name      string // of the lock
	Waiters   int    // in all processes together
	Processes int    // that the waiters are divided among; 1: this one
	Hold      time.Duration
	WarmUp    time.Duration
	Window    time.Duration
}

// Way opens one kind of locks, in this process and in others.
type Way struct {
	// Open opens the locks in this process.
	Open func(context.Context) (Locks, error)
	// Command starts a process that calls [Serve], which opens the locks by Spec. Both are
	// unused for one process.
	Command func() *exec.Cmd
	Spec    string
}

// Handed is the result of a HandOver.
type Handed struct {
	Grants    []int64       // of each waiter
	HandOvers int64         // grants to another than the last holder
	Latency   *Latencies    // of these, from the release to the grant
	Wait      *Latencies    // from the request to the grant
	Longest   time.Duration // wait, whether granted or not
	Elapsed   time.Duration
	Overlaps  int64 // grants while another waiter held the lock; 0 for a correct lock
}

// PerSecond is the rate of hand-overs.
func (h *Handed) PerSecond() float64 { return float64(h.HandOvers) / h.Elapsed.Seconds() }

// Granted returns how many grants there were.
func (h *Handed) Granted() (n int64) {
	for _, g := range h.Grants {
		n += g
	}
	return n
}

// Measure runs the waiters. It calls edge when the window begins and when it ends.
func (h HandOver) Measure(ctx context.Context, way Way, edge func() error) (handed *Handed, err error) {
	board, err := NewBoard(os.TempDir())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, board.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	parties, err := h.hire(ctx, way, board, cancel)
	if err != nil {
		return nil, err
	}
	handed = new(Handed)
	err = window(ctx, h.WarmUp, h.Window, board.begin, edge, &handed.Elapsed)
	all := newShare()
	for _, p := range parties {
		s, ended := p.end()
		if ended != nil {
			err = errors.Join(ended, err)
			continue
		}
		all.add(s)
	}
	if err != nil {
		return nil, err
	}
	handed.Grants, handed.HandOvers = all.Grants, all.HandOvers
	handed.Latency, handed.Wait, handed.Longest = all.Latency, all.Wait, all.Longest
	handed.Overlaps = board.Overlaps()
	return handed, nil
}

// party is the running contenders of one process. end stops them and returns their
// figures.
type party interface{ end() (*share, error) }

// hire starts all contenders. A failure of one cancels the measurement.
func (h HandOver) hire(ctx context.Context, way Way, board *Board, cancel context.CancelCauseFunc) (parties []party, err error) {
	processes := max(h.Processes, 1)
	defer func() {
		if err == nil {
			return
		}
		for _, p := range parties {
			_, ended := p.end()
			err = errors.Join(err, ended)
		}
		parties = nil
	}()
	first := int64(1)
	for i := range processes {
		c := contenders{Name: h.Name, First: first, Count: portion(h.Waiters, processes, i), Hold: h.Hold}
		first += int64(c.Count)
		var p party
		if processes == 1 {
			p, err = startHere(ctx, way, board, c, cancel)
		} else {
			p, err = startProcess(way, board, c, cancel)
		}
		if err != nil {
			return parties, err
		}
		parties = append(parties, p)
	}
	for _, p := range parties {
		if p, ok := p.(*process); ok {
			if err := p.awaitReady(ctx); err != nil {
				return parties, err
			}
		}
	}
	return parties, nil
}

// portion is the share of the i-th of n in an evenly divided total.
func portion(total, n, i int) int { return total*(i+1)/n - total*i/n }

// here are contenders of this process.
type here struct {
	stop  context.CancelFunc
	done  chan struct{} // closed once seen and err are set
	seen  *share
	err   error
	locks Locks
}

func startHere(ctx context.Context, way Way, board *Board, c contenders, failed context.CancelCauseFunc) (*here, error) {
	locks, err := way.Open(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	h := &here{stop: stop, done: make(chan struct{}), locks: locks}
	go func() {
		defer close(h.done)
		h.seen, h.err = c.contend(ctx, board, locks)
		if h.err != nil {
			failed(h.err)
		}
	}()
	return h, nil
}

func (h *here) end() (*share, error) {
	h.stop()
	<-h.done
	if err := errors.Join(h.err, h.locks.Close()); err != nil {
		return nil, err
	}
	return h.seen, nil
}
