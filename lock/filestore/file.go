//go:build linux

package filestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// file is an open file with flock(2), and the content of its current version. A process that is
// killed at any instant leaves this version or the next one: the file begins with two slots, of
// which the newer valid one locates the content, and a write changes neither that slot nor what
// it locates.
type file struct {
	in      *folder
	fd      int
	path    string
	give    func() // gives the turn of the store's next request
	content []byte // nil if there is none
	seq, at uint64 // of the content
}

const (
	slotSize   = 20 // sequence number, offset, length, checksum
	contentAt  = 2 * slotSize
	firstRead  = 4096
	maxContent = 64 << 20

	// What is made in the folder gets these modes whatever the umask is: one that takes rights of the
	// user would keep every other process from the folder, or from a lock, for good.
	modeOfFolders, modeOfFiles = 0o700, 0o600

	// lockSpins is how often a busy file is tried before the wait sleeps: it is used for some µs.
	lockSpins = 20
	minPause  = 50 * time.Microsecond
	maxPause  = 5 * time.Millisecond
)

var (
	errBusy    = errors.New("another process has kept its file locked for longer than the request may take, as one that was stopped may do (see lslocks)")
	errForeign = errors.New("is no file of this user: remove it")
	errDeleted = fmt.Errorf("the folder was deleted: start this process again: %w", unix.ENOENT)
	errQueued  = errors.New("the requests before it have used the file for longer than it may take: they are many, or another process has kept it locked (see lslocks)")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// open opens and locks a file, and reads it. It waits until ctx ends: for the store's own requests before it, and
// then for other processes. If all tried flock(2), a thousand requests for one name would starve each other, the
// renewals of its holder among them, and each would need a descriptor. A file that does not exist is created if
// create is set; otherwise the error is unix.ENOENT.
func (d *folder) open(ctx context.Context, name string, create bool) (f *file, err error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, driver.DefaultRequestTimeout)
		defer cancel()
	}
	if err = over(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	give, err := d.turns.Take(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, errQueued, context.Cause(ctx))
	}
	if f, err = d.openInTurn(ctx, name, create); err != nil {
		give()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.give = give
	return f, nil
}

func (d *folder) openInTurn(ctx context.Context, name string, create bool) (*file, error) {
	for {
		fd, err := openAt(d.fd, name, create)
		if err != nil {
			if d.foreign(name) {
				err = fmt.Errorf("%w: %w", errForeign, err)
			}
			return nil, err
		}
		f := &file{in: d, fd: fd, path: name}
		if err = f.lock(ctx); err == nil {
			var removed bool
			if removed, err = f.read(); err == nil && !removed {
				return f, nil
			}
		}
		f.closeFile()
		if err != nil {
			return nil, err
		}
	}
}

// foreign reports whether something else has the path of a file, such as a folder, or another user's file.
func (d *folder) foreign(name string) bool {
	var stat unix.Stat_t
	return unix.Fstatat(d.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil && !own(&stat)
}

func own(stat *unix.Stat_t) bool {
	return stat.Mode&unix.S_IFMT == unix.S_IFREG && stat.Uid == uint32(unix.Geteuid())
}

// openAt opens a file, and makes its folder if need be. No symbolic link is followed.
func openAt(dir int, name string, create bool) (fd int, err error) {
	flags := unix.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK
	if create {
		flags |= unix.O_CREAT
	}
	for made := false; ; {
		fd, err = unix.Openat(dir, name, flags, modeOfFiles)
		switch {
		case errors.Is(err, unix.ENOENT) && create && !made:
			if err := makeFolder(dir, path.Dir(name)); err != nil {
				return 0, err
			}
			made = true
		case !errors.Is(err, unix.EINTR):
			return fd, err
		}
	}
}

// makeFolder makes a folder in dir, and those that it is in. They may have been deleted, and so
// may dir itself.
func makeFolder(dir int, name string) error {
	if name == "." {
		return errDeleted
	}
	err := unix.Mkdirat(dir, name, modeOfFolders)
	if errors.Is(err, unix.ENOENT) {
		if err = makeFolder(dir, path.Dir(name)); err == nil {
			err = unix.Mkdirat(dir, name, modeOfFolders)
		}
	}
	switch {
	case errors.Is(err, unix.EEXIST):
		return nil
	case err != nil:
		return err
	}
	return unix.Fchmodat(dir, name, modeOfFolders, 0)
}

// lock waits for the file's lock, and returns an error if a context has ended by then. It tries
// without blocking, since a thread that waits for a stopped process cannot be called back.
func (f *file) lock(ctx context.Context) error {
	for try, pause := 0, minPause; ; try++ {
		err := unix.Flock(f.fd, unix.LOCK_EX|unix.LOCK_NB)
		switch ended := over(ctx); {
		case ended != nil && try > 0:
			return fmt.Errorf("%w: %w", errBusy, ended)
		case ended != nil:
			return ended
		case f.in.ending.Err() != nil:
			return context.Cause(f.in.ending)
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return err // nil: it is locked
		case try < lockSpins:
			runtime.Gosched()
			continue
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-f.in.ending.Done():
		}
		timer.Stop()
		pause = min(2*pause, maxPause)
	}
}

// over returns why a request's time is over. The timer of ctx may be late, as after a stop.
func over(ctx context.Context) error {
	if by, bounded := ctx.Deadline(); ctx.Err() == nil && bounded && time.Now().After(by) {
		return context.DeadlineExceeded
	}
	return context.Cause(ctx)
}

// read reads the content. removed is true if the file was removed before it was locked: another one may
// have its path. Its number of links does not show that if it has another name, as of a backup.
func (f *file) read() (removed bool, err error) {
	var stat, named unix.Stat_t
	if err := unix.Fstat(f.fd, &stat); err != nil {
		return false, err
	}
	err = unix.Fstatat(f.in.fd, f.path, &named, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || err == nil && (named.Ino != stat.Ino || named.Dev != stat.Dev) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	if !own(&stat) {
		return false, errForeign
	}
	if stat.Mode&modeOfFiles != modeOfFiles { // it is new
		if err := unix.Fchmod(f.fd, modeOfFiles); err != nil {
			return false, err
		}
	}
	b := make([]byte, min(stat.Size, firstRead))
	if err := readFull(f.fd, b, 0); err != nil {
		return false, err
	}
	if len(b) < contentAt {
		return false, nil
	}
	for i := range uint64(2) {
		slot := b[i*slotSize:][:slotSize]
		seq, at, size := binary.LittleEndian.Uint64(slot), binary.LittleEndian.Uint64(slot[8:])>>32, binary.LittleEndian.Uint64(slot[8:])&(1<<32-1)
		if seq <= f.seq || at < contentAt || at+size > uint64(stat.Size) || size > maxContent {
			continue
		}
		content := make([]byte, size)
		if at+size <= uint64(len(b)) {
			copy(content, b[at:])
		} else if err := readFull(f.fd, content, int64(at)); err != nil {
			return false, err
		}
		if checksum(slot, content) == binary.LittleEndian.Uint32(slot[16:]) {
			f.content, f.seq, f.at = content, seq, at
		}
	}
	return false, nil
}

func readFull(fd int, b []byte, at int64) error {
	for len(b) > 0 {
		n, err := syscall.Pread(fd, b, at)
		if n <= 0 {
			return errors.Join(err, errors.New("the file is shorter than its size"))
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

func checksum(slot, content []byte) uint32 {
	return crc32.Update(crc32.Checksum(slot[:16], castagnoli), castagnoli, content)
}

// write makes content the current version. After an error that matches driver.ErrNotDone the
// version is the one that was read.
func (f *file) write(content []byte) error {
	if len(content) > maxContent {
		return fmt.Errorf("%s: %d bytes: %w", f.path, len(content), driver.ErrNotDone)
	}
	at, size := uint64(contentAt), uint64(len(content))
	if f.seq > 0 && contentAt+size > f.at {
		at = f.at + uint64(len(f.content))
	}
	if err := f.writeFull(content, int64(at)); err != nil {
		return fmt.Errorf("%s: %w: %w", f.path, driver.ErrNotDone, err)
	}
	slot := make([]byte, slotSize)
	binary.LittleEndian.PutUint64(slot, f.seq+1)
	binary.LittleEndian.PutUint64(slot[8:], at<<32|size)
	binary.LittleEndian.PutUint32(slot[16:], checksum(slot, content))
	if err := f.writeFull(slot, int64((f.seq+1)%2*slotSize)); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	f.content, f.seq, f.at = content, f.seq+1, at
	return nil
}

func (f *file) writeFull(b []byte, at int64) error {
	n, err := f.in.pwrite(f.fd, b, at)
	if err == nil && n < len(b) {
		err = unix.ENOSPC
	}
	return err
}

// remove removes the file. The caller closes it.
func (f *file) remove() { unix.Unlinkat(f.in.fd, f.path, 0) } //nolint:errcheck // then it stays for another time

// close ends the use of the file.
func (f *file) close() {
	f.closeFile()
	f.give()
}

// closeFile unlocks the file: a process that is being started may still have a copy of it.
func (f *file) closeFile() {
	unix.Flock(f.fd, unix.LOCK_UN) //nolint:errcheck // closing it does the same
	unix.Close(f.fd)
}
