//go:build unix

package contention

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

// Way opens one kind of locks, in this process and in others.
type Way struct {
	// Open opens the locks in this process.
	Open func(context.Context) (Locks, error)
	// Command starts a process that calls [Serve], which opens the locks by Spec. Both are
	// unused for one process.
	Command func() *exec.Cmd
	Spec    string
}

// work is what the goroutines of one process do. One of its fields is set.
type work struct {
	Contend *contenders `json:"contend,omitempty"`
	Pair    *pairers    `json:"pair,omitempty"`
}

// run works until ctx ends, and returns the figures of the measuring phase.
func (w work) run(ctx context.Context, board *Board, locks Locks) (*share, error) {
	if w.Pair != nil {
		return w.Pair.pair(ctx, board, locks)
	}
	return w.Contend.contend(ctx, board, locks)
}

// measured has the figures of all processes.
type measured struct {
	all      *share
	elapsed  time.Duration
	overlaps int64
}

// measure does each work in a process of its own, or a single one in this process. It calls
// edge when the window begins and when it ends.
func measure(ctx context.Context, way Way, works []work, warmUp, length time.Duration, edge func() error) (m *measured, err error) {
	board, err := NewBoard(os.TempDir())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, board.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	parties, err := hire(ctx, way, board, works, cancel)
	if err != nil {
		return nil, err
	}
	m = &measured{all: newShare()}
	m.elapsed, err = window(ctx, warmUp, length, board.begin, edge)
	for _, p := range parties {
		s, ended := p.end()
		if ended != nil {
			err = errors.Join(ended, err)
			continue
		}
		m.all.add(s)
	}
	m.overlaps = board.Overlaps()
	return m, err
}

// window waits for the warm-up and the window. It calls begin at the start of each phase, and
// edge at both edges of the window, and returns the window's length.
func window(ctx context.Context, warmUp, length time.Duration, begin func(phase int64), edge func() error) (elapsed time.Duration, err error) {
	if err := pass(ctx, warmUp); err != nil {
		return 0, err
	}
	if err := edge(); err != nil {
		return 0, err
	}
	begin(measuring)
	began := time.Now()
	if err := pass(ctx, length); err != nil {
		return 0, err
	}
	begin(over)
	return time.Since(began), edge()
}

// pass waits for a time, or until ctx ends.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unlessOver returns err, or nil if ctx has ended, which then caused it.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// party is the work of one process, under way. end stops it and returns its figures.
type party interface{ end() (*share, error) }

// hire starts all work. A failure of one cancels the measurement.
func hire(ctx context.Context, way Way, board *Board, works []work, cancel context.CancelCauseFunc) (parties []party, err error) {
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
	for _, w := range works {
		var p party
		if len(works) == 1 {
			p, err = startHere(ctx, way, board, w, cancel)
		} else {
			p, err = startProcess(way, board, w, cancel)
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

// here is the work of this process.
type here struct {
	stop  context.CancelFunc
	done  chan struct{} // closed once seen and err are set
	seen  *share
	err   error
	locks Locks
}

func startHere(ctx context.Context, way Way, board *Board, w work, failed context.CancelCauseFunc) (*here, error) {
	locks, err := way.Open(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	h := &here{stop: stop, done: make(chan struct{}), locks: locks}
	go func() {
		defer close(h.done)
		h.seen, h.err = w.run(ctx, board, locks)
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
