//go:build linux

package filestore

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// peers are the stores of a folder, of all processes, by their ids.
type peers interface {
	look(id string) presence
	// send delivers a message, unless the store has closed, its process has ended, or it has
	// not received any for too long.
	send(id string, message []byte)
	// watch calls ended, once, when a store closes or its process ends, unless unwatch or close
	// comes first. Of one that is watched already it does nothing. It reports false if it cannot
	// watch now, as a process without a free descriptor.
	watch(id string, ended func()) (done bool)
	// unwatch ends all watching.
	unwatch()
	// presence returns an open file that lets this store count as present, in any process.
	presence() (*os.File, error)
	// restore has the other stores find this one again, after what is in the folder was deleted.
	restore()
	// abandon ends this store as the end of the process does, for tests.
	abandon()
	// close ends this store. It waits for the functions that are called.
	close()
}

// presence is what the kernel knows of a store.
type presence uint8

const (
	present presence = iota // or unknown
	closed                  // what its process held ends by its TTL
	dead                    // its process has ended
)

// fifos are peers that each read a named pipe. Opening it to write fails once the process that
// read it is gone, however it has ended and whichever process has its id now; and the kernel
// reports the end to all that have it open.
type fifos struct {
	dir      int
	id       string
	received func([]byte)
	missed   func()

	mu      sync.Mutex
	own     *os.File            // guarded by mu
	lent    bool                // guarded by mu; another process may have own open
	watched map[string]*os.File // guarded by mu; nil: closed
	running sync.WaitGroup
}

const (
	pathOfStores = "stores/"
	// pathOfNew begins the path of a pipe that nothing reads yet.
	pathOfNew = pathOfStores + "new-"
	pipeRoom  = 64 << 10
	pipeBuf   = 4096 // PIPE_BUF: what is written at once
)

// openFIFO makes the pipe of a store and calls received with each message. missed is called after
// messages may have been lost.
func openFIFO(dir int, id string, received func([]byte), missed func()) (peers, error) {
	p := &fifos{dir: dir, id: id, received: received, missed: missed, watched: make(map[string]*os.File)}
	return p, p.make()
}

// make makes the pipe, and reads it.
func (p *fifos) make() error {
	err := unix.Mkfifoat(p.dir, pathOfNew+p.id, modeOfFiles)
	if errors.Is(err, unix.ENOENT) && makeFolder(p.dir, path.Dir(pathOfNew)) == nil {
		err = unix.Mkfifoat(p.dir, pathOfNew+p.id, modeOfFiles)
	}
	if err == nil {
		err = unix.Fchmodat(p.dir, pathOfNew+p.id, modeOfFiles, 0)
	}
	if err != nil {
		return fmt.Errorf("a named pipe: %w", err)
	}
	fd, err := unix.Openat(p.dir, pathOfNew+p.id, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Unlinkat(p.dir, pathOfNew+p.id, 0) //nolint:errcheck // a sweep removes it
		return fmt.Errorf("a named pipe: %w", err)
	}
	if err := unix.Renameat(p.dir, pathOfNew+p.id, p.dir, pathOfStores+p.id); err != nil {
		unix.Close(fd)
		return fmt.Errorf("a named pipe: %w", err)
	}
	room, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		room = 0 // every message may then follow lost ones
	}
	own := os.NewFile(uintptr(fd), pathOfStores+p.id)
	p.own = own
	p.running.Go(func() { p.receive(own, room) })
	return nil
}

// restore makes the pipe again if it was deleted, but not where another process has the former one open: its
// end would not be awaited.
func (p *fifos) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watched == nil || p.lent || p.look(p.id) != closed {
		return
	}
	former := p.own
	if p.make() == nil {
		former.Close()
		p.running.Go(p.missed)
	}
}

// receive reads the messages. A sender whose message does not fit drops it. A pipe is full when
// each of its pages has at most a message's length left, so a read of less than the half shows
// that it was not.
func (p *fifos) receive(own *os.File, room int) {
	b := make([]byte, max(room, pipeRoom))
	for {
		n, err := own.Read(b)
		if err != nil {
			return
		}
		for rest := b[:n]; len(rest) >= 2; {
			size := 2 + int(rest[0]) + int(rest[1])<<8
			if size > len(rest) {
				p.missed()
				break
			}
			p.received(rest[2:size])
			rest = rest[size:]
		}
		if n > room/2-pipeBuf {
			p.missed()
		}
	}
}

// open opens the pipe of another store.
func (p *fifos) open(id string) (fd int, err error) {
	if strings.ContainsAny(id, "/.") || id == "" {
		return 0, unix.ENOENT
	}
	for {
		fd, err = unix.Openat(p.dir, pathOfStores+id, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func (p *fifos) look(id string) presence {
	fd, err := p.open(id)
	switch {
	case errors.Is(err, unix.ENXIO):
		return dead
	case errors.Is(err, unix.ENOENT):
		return closed
	case err == nil:
		unix.Close(fd)
	}
	return present
}

func (p *fifos) send(id string, message []byte) {
	fd, err := p.open(id)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	framed := append([]byte{byte(len(message)), byte(len(message) >> 8)}, message...)
	syscall.Write(fd, framed) //nolint:errcheck // the reader notices that its pipe was full
}

func (p *fifos) watch(id string, ended func()) (done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watched == nil || p.watched[id] != nil {
		return true
	}
	fd, err := p.open(id)
	if errors.Is(err, unix.ENXIO) { // its process has ended since it was looked at
		p.running.Go(ended)
		return true
	} else if err != nil {
		return errors.Is(err, unix.ENOENT)
	}
	f := os.NewFile(uintptr(fd), pathOfStores+id)
	p.watched[id] = f
	p.running.Go(func() {
		err := waitForReader(f)
		p.mu.Lock()
		if p.watched[id] == f {
			delete(p.watched, id)
		}
		p.mu.Unlock()
		if f.Close(); err == nil {
			ended()
		}
	})
	return true
}

func (p *fifos) unwatch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.watched {
		f.Close()
	}
	clear(p.watched)
}

// waitForReader returns when no process has a pipe open to read it.
func waitForReader(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		unix.Poll(poll, 0) //nolint:errcheck // the event is awaited
		return poll[0].Revents&unix.POLLERR != 0
	})
}

func (p *fifos) presence() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fd, err := unix.Openat(p.dir, pathOfStores+p.id, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the named pipe of this process: %w", err)
	}
	p.lent = true
	return os.NewFile(uintptr(fd), pathOfStores+p.id), nil
}

func (p *fifos) abandon() {
	p.mu.Lock()
	watched := p.watched
	p.watched = nil
	p.own.Close()
	p.mu.Unlock()
	for _, f := range watched {
		f.Close()
	}
	p.running.Wait()
}

func (p *fifos) close() {
	unix.Unlinkat(p.dir, pathOfStores+p.id, 0) //nolint:errcheck // then the store counts as dead
	p.abandon()
}
