//go:build unix

package contention

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Board is memory that the contenders of all processes share: what the lock
// protects, and the clock by which they agree.
type Board struct {
	path  string
	bytes []byte
	words *words
	clock clock
	owner bool // made the file
}

// words is the layout of a board.
type words struct {
	phase    atomic.Int64
	holder   atomic.Int64 // the contender that holds the lock; 0: nobody
	last     atomic.Int64 // the contender that held it last; 0: nobody yet
	released atomic.Int64 // when that one set out to give it back, by the clock
	ended    atomic.Int64 // when the phase over began, by the clock
	overlaps atomic.Int64 // grants while somebody held the lock
}

// Phases of a measurement, in their order.
const (
	warmingUp = iota
	measuring
	over
)

// NewBoard makes a board in a file of the folder.
func NewBoard(folder string) (*Board, error) {
	f, err := os.CreateTemp(folder, "board")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(unsafe.Sizeof(words{}))); err != nil {
		return nil, err
	}
	b, err := openBoard(f)
	if err != nil {
		return nil, err
	}
	b.owner = true
	return b, nil
}

// OpenBoard opens the board that another process has made.
func OpenBoard(path string) (*Board, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return openBoard(f)
}

func openBoard(f *os.File) (*Board, error) {
	size := int(unsafe.Sizeof(words{}))
	bytes, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	b := &Board{path: f.Name(), bytes: bytes, words: (*words)(unsafe.Pointer(&bytes[0]))}
	b.clock, err = newClock()
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Path is what OpenBoard takes.
func (b *Board) Path() string { return b.path }

// Close gives the memory back; a board that was made here is gone.
func (b *Board) Close() error {
	err := unix.Munmap(b.bytes)
	if b.owner {
		err = os.Remove(b.path)
	}
	return err
}

// Overlaps is how often the lock was granted while somebody held it.
func (b *Board) Overlaps() int64 { return b.words.overlaps.Load() }

func (b *Board) begin(phase int64) {
	if phase == over {
		b.words.ended.Store(int64(b.clock.now()))
	}
	b.words.phase.Store(phase)
}

func (b *Board) phase() int64 { return b.words.phase.Load() }

// unended returns how long a wait that began at asked had lasted when the
// measurement was over.
func (b *Board) unended(asked instant) time.Duration {
	if b.phase() != over {
		return 0
	}
	return instant(b.words.ended.Load()).since(asked)
}

// A change is a grant as the board has seen it.
type change struct {
	granted  instant
	released instant // when the holder before set out to give the lock back
	handed   bool    // that was another contender
}

// enter signs the board for a contender, numbered from 1, that was granted the lock.
func (b *Board) enter(contender int64) change {
	c := change{granted: b.clock.now()}
	if !b.words.holder.CompareAndSwap(0, contender) {
		b.words.overlaps.Add(1)
	}
	last := b.words.last.Load()
	c.handed = last != 0 && last != contender
	c.released = instant(b.words.released.Load())
	return c
}

// leave wipes off what enter wrote. The caller gives the lock back after it.
func (b *Board) leave(contender int64) {
	b.words.last.Store(contender)
	b.words.released.Store(int64(b.clock.now()))
	b.words.holder.CompareAndSwap(contender, 0) // fails if enter found an overlap
}

// instant is a reading of the monotonic clock that all processes of a machine
// share, in nanoseconds.
type instant int64

func (i instant) since(earlier instant) time.Duration { return time.Duration(i - earlier) }

// clock tells instants. Go's own readings of that clock mean nothing to another
// process.
type clock struct {
	time time.Time
	at   instant
}

func newClock() (clock, error) {
	var at unix.Timespec
	before := time.Now()
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at)
	return clock{before.Add(time.Since(before) / 2), instant(at.Nano())}, err
}

func (c clock) now() instant { return c.at + instant(time.Since(c.time)) }
