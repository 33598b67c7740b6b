//go:build linux

package filestore

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

var _ interface {
	driver.Store
	driver.Counter
	driver.Fencer
	driver.PlaceKeeper
	driver.Inspector
} = (*Store)(nil)

// requests are steps on files.
type requests = machine.Requests

// Store keeps locks in a folder. Its methods are safe for concurrent use.
type Store struct {
	requests
	*folder
	id     string
	base   int64 // of the folder's clock
	system system
	peers  peers
	arrive func() // for tests: a request reaches the folder

	end    context.CancelCauseFunc
	using  sync.RWMutex // held for reading while the folder is in use
	closed bool         // guarded by using

	mu     sync.Mutex // guards what follows; notify is called with it
	subs   map[string]machine.Subscribers
	sweeps *time.Timer // nil: nothing may be to remove
	asks   *time.Timer // nil: no process is to be watched that could not be
}

const (
	pathOfLocks   = "locks/"
	pathOfClients = "clients/"
)

var errClosed = errors.New("the store is closed")

// New opens the locks in a folder, which it creates if need be. The folder must belong to this
// user alone and be on a local file system. Its error matches [driver.ErrUnavailable] if another
// process has kept a file of the folder locked for a second.
func New(path string) (*Store, error) {
	system, err := linux()
	if err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}
	return open(path, system)
}

func open(path string, system system) (_ *Store, err error) {
	fd, err := openFolder(path)
	if err != nil {
		return nil, fmt.Errorf("filestore: the folder %s: %w", path, err)
	}
	s := &Store{id: rand.Text(), system: system, subs: make(map[string]machine.Subscribers), arrive: func() {}}
	ending, end := context.WithCancelCause(context.Background())
	s.folder, s.end = &folder{fd: fd, ending: ending, pwrite: system.pwrite}, end
	if s.base, err = openClock(ending, s.folder, system, 0, ""); err == nil {
		s.peers, err = system.peers(fd, s.id, s.receive, s.missed)
	}
	if err == nil { // one of another start may have set the clock anew before the pipe was there
		if s.base, err = openClock(ending, s.folder, system, s.base, s.id); err != nil {
			s.peers.close()
		}
	}
	if err != nil {
		unix.Close(fd)
		if errors.Is(err, errBusy) {
			err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		return nil, fmt.Errorf("filestore: the folder %s: %w", path, err)
	}
	s.requests = requests{Step: s.step, Client: s.client, Names: s.names}
	return s, nil
}

// Close ends the store's subscriptions. Requests fail afterwards. What its clients hold ends by
// its TTL, as they may still be at work; see the package's documentation.
func (s *Store) Close() error {
	s.sweep(closeSweep)
	return s.finish(peers.close)
}

func (s *Store) finish(leave func(peers)) error {
	s.end(errClosed)
	s.using.Lock()
	if s.closed {
		s.using.Unlock()
		return nil
	}
	s.closed = true
	s.using.Unlock()
	leave(s.peers)
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.subs)
	for _, timer := range []*time.Timer{s.sweeps, s.asks} {
		if timer != nil {
			timer.Stop()
		}
	}
	return unix.Close(s.fd)
}

// plan has f called after a while, unless its timer runs already or the store has ended.
func (s *Store) plan(timer **time.Timer, after time.Duration, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *timer == nil && s.ending.Err() == nil {
		*timer = time.AfterFunc(after, func() {
			s.mu.Lock()
			*timer = nil
			s.mu.Unlock()
			f()
		})
	}
}

// Presence returns an open file for another process, which is to end the work of this one: while
// any process has it open, what this store's clients hold is not free at once when their process
// ends, but by its TTL.
func (s *Store) Presence() (*os.File, error) {
	done, err := s.use()
	if err != nil {
		return nil, err
	}
	defer done()
	s.peers.restore()
	file, err := s.peers.presence()
	if err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}
	return file, nil
}

// now is the time by the folder's clock.
func (s *Store) now() time.Time { return time.UnixMicro(s.base).Add(s.system.uptime()) }

// use has the folder stay open until done is called.
func (s *Store) use() (done func(), err error) {
	s.using.RLock()
	if s.closed {
		s.using.RUnlock()
		return nil, fmt.Errorf("filestore: %w: %w", errClosed, driver.ErrNotDone)
	}
	return s.using.RUnlock, nil
}

// file opens and locks a file, within use. No waiting mends what else is at its path, or a folder that was deleted.
func (s *Store) file(ctx context.Context, path string) (*file, error) {
	f, err := s.open(ctx, path, true)
	switch {
	case errors.Is(err, errForeign), errors.Is(err, errDeleted):
		return nil, fmt.Errorf("filestore: %w: %w", driver.ErrNotDone, err)
	case err != nil:
		return nil, fmt.Errorf("filestore: %w: %w: %w", driver.ErrUnavailable, driver.ErrNotDone, err)
	}
	return f, nil
}

// fileOf returns the path of what is stored under a name of any form.
func fileOf(folder, name string) string {
	hash := sha256.Sum256([]byte(name))
	sum := hex.EncodeToString(hash[:])
	return folder + sum[:2] + "/" + sum[2:]
}

// step makes a step on the state of a name, and delivers its messages.
func (s *Store) step(ctx context.Context, name string, step func(st *machine.State, now time.Time) []machine.Message) error {
	return s.change(ctx, name, func(w *work, now time.Time) []machine.Message { return step(&w.state, now) })
}

// change is a step that may also change the rest of the record.
func (s *Store) change(ctx context.Context, name string, change change) error {
	s.arrive()
	done, err := s.use()
	if err != nil {
		return err
	}
	defer done()
	f, err := s.file(ctx, fileOf(pathOfLocks, name))
	if err != nil {
		return err
	}
	w, err := s.load(ctx, f)
	if err == nil {
		w.name = name
		w.change(change)
		err = w.save()
	}
	f.close()
	if err != nil {
		return err
	}
	s.deliver(w.out)
	if s.waits(name) {
		s.watch(w.stores(s.id)...)
	}
	s.planSweep()
	return nil
}

type change func(w *work, now time.Time) []machine.Message

// work is a request's work on a file.
type work struct {
	record
	s    *Store
	file *file
	out  []outgoing
}

// outgoing is a message to the subscriptions of a store.
type outgoing struct {
	store string
	message
}

// load reads the record of a file. One that is not of the store's clock shows that the folder may
// have another one.
func (s *Store) load(ctx context.Context, f *file) (*work, error) {
	w := &work{s: s, file: f}
	if !w.read(f.content, s.base) {
		if err := s.checkClock(ctx); err != nil {
			return nil, err
		}
	}
	w.state.Listening = w.listening
	return w, nil
}

// save stores the record, unless it is as before.
func (w *work) save() error {
	content := machine.Encode(w.code)
	if bytes.Equal(content, w.file.content) {
		return nil
	}
	return w.s.write(w.file, content)
}

func (s *Store) write(f *file, content []byte) error {
	if err := f.write(content); err != nil {
		return fmt.Errorf("filestore: %w: %w", driver.ErrUnavailable, err)
	}
	return nil
}

// change makes a step, once what dead processes held was freed.
func (w *work) change(change change) {
	w.subscribe()
	w.free()
	w.address(change(w, w.s.now()))
	if w.assign(w.s.id) {
		w.announce()
	}
}

// announcement is the kind of the topic of an announcement, which no subscription has.
const announcement = ^driver.Kind(0)

// announce has the stores watch this one that have waited before it came: the message names it. Those that wait
// behind this one watch it.
func (w *work) announce() {
	for _, wait := range w.waits {
		if wait.store == w.s.id {
			return
		}
		w.out = append(w.out, outgoing{wait.store, message{w.name, machine.Message{To: machine.Topic{Kind: announcement, Of: w.s.id}}}})
	}
}

// subscribe makes the record have this store's subscriptions.
func (w *work) subscribe() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	local, known := w.s.subs[w.name], make(map[machine.Topic]bool)
	w.waits = slices.DeleteFunc(w.waits, func(wait wait) bool {
		if wait.store != w.s.id {
			return false
		}
		known[wait.topic] = true
		return local[wait.topic] == nil
	})
	for topic := range local {
		if !known[topic] {
			w.waits = append(w.waits, wait{topic, w.s.id})
		}
	}
}

// free releases what processes hold that have ended.
func (w *work) free() {
	looked := make(map[string]presence)
	for owner, store := range w.of {
		if store == "" || store == w.s.id {
			continue
		}
		p, known := looked[store]
		if !known {
			p = w.s.peers.look(store)
			looked[store] = p
		}
		if p == dead {
			w.address(w.state.Leave(w.s.now(), owner))
		}
	}
}

// listening returns how many stores are subscribed to a topic.
func (w *work) listening(t machine.Topic) (n int) {
	for _, wait := range w.waits {
		if wait.topic == t && (wait.store == w.s.id || w.s.peers.look(wait.store) == present) {
			n++
		}
	}
	return n
}

// address finds the stores that messages are for. An owner to which a release has granted the
// lock belongs to the first.
func (w *work) address(messages []machine.Message) {
	for _, m := range messages {
		for _, wait := range w.waits {
			if wait.topic != m.To {
				continue
			}
			w.out = append(w.out, outgoing{wait.store, message{w.name, m}})
			if _, known := w.of[m.Notice.Owner]; m.Notice.Owner != "" && !known {
				w.own(m.Notice.Owner, wait.store)
			}
		}
	}
}

// Release lowers the holds of an owner, see [driver.Store]. One that is kept outlives the
// process.
func (s *Store) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	err = s.change(ctx, h.Name, func(w *work, now time.Time) (sent []machine.Message) {
		if held, sent = w.state.Release(now, h); held && h.Count == 0 && h.Keep > 0 {
			for _, owner := range machine.OwnersOf(h) {
				w.own(owner, "")
			}
		}
		return sent
	})
	return held, err
}
