//go:build unix

package contention

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/bench/hostclock"
)

// A Board is memory that the contenders of all processes share, and that the lock protects.
// Its instants are those of the host's clock.
type Board struct {
	path  string
	bytes []byte
	words *words
	clock hostclock.Clock
	owner bool // whether this board made the file, and removes it
}

// words is the layout of a board.
type words struct {
	phase    atomic.Int64
	holder   atomic.Int64 // the contender that holds the lock; 0: none
	last     atomic.Int64 // the contender that held it last; 0: none yet
	released atomic.Int64 // when the last holder began to release it
	ended    atomic.Int64 // when the measurement ended
	overlaps atomic.Int64 // grants while the lock was held
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

// OpenBoard opens the board of another process.
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
	b.clock, err = hostclock.New()
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Path returns the argument for OpenBoard.
func (b *Board) Path() string { return b.path }

// Close unmaps the memory, and removes the file if NewBoard made it.
func (b *Board) Close() error {
	err := unix.Munmap(b.bytes)
	if b.owner {
		err = os.Remove(b.path)
	}
	return err
}

// Overlaps returns how often the lock was granted while it was held.
func (b *Board) Overlaps() int64 { return b.words.overlaps.Load() }

func (b *Board) begin(phase int64) {
	if phase == over {
		b.words.ended.Store(int64(b.clock.Now()))
	}
	b.words.phase.Store(phase)
}

func (b *Board) phase() int64 { return b.words.phase.Load() }

// unended returns how long a wait that began at asked had lasted when the measurement
// ended.
func (b *Board) unended(asked hostclock.Instant) time.Duration {
	if b.phase() != over {
		return 0
	}
	return hostclock.Instant(b.words.ended.Load()).Since(asked)
}

// A change is a grant that the board has recorded.
type change struct {
	granted  hostclock.Instant
	released hostclock.Instant // when the previous holder began to release it
	handed   bool              // whether that was another contender
}

// enter records the grant to a contender, numbered from 1.
func (b *Board) enter(contender int64) change {
	c := change{granted: b.clock.Now()}
	if !b.words.holder.CompareAndSwap(0, contender) {
		b.words.overlaps.Add(1)
	}
	last := b.words.last.Load()
	c.handed = last != 0 && last != contender
	c.released = hostclock.Instant(b.words.released.Load())
	return c
}

// leave removes the record. The caller releases the lock after that.
func (b *Board) leave(contender int64) {
	b.words.last.Store(contender)
	b.words.released.Store(int64(b.clock.Now()))
	b.words.holder.CompareAndSwap(contender, 0) // fails if enter found an overlap
}
