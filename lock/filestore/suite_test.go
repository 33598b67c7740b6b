//go:build linux

package filestore

import (
	"context"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(contender); folder != "" {
		contend(folder)
		return
	}
	redistest.Parallel(64)
	testmain.Run(m)
}

// The files, their locks and the clock are real or virtual as the bubble has them; only the named
// pipes are replaced, on which a goroutine would wait outside of the bubble.
func TestInBubble(t *testing.T) {
	drivertest.Run(t, drivertest.Suite{
		Backend: func(t testing.TB) drivertest.Backend {
			start := time.Now()
			uptime := func() time.Duration { return time.Since(start) }
			return backend(t, system{"1 bubble", uptime, time.Now, syscall.Pwrite, newMailboxes().open})
		},
		Bubble: true,
	})
}

// backend returns a folder of its own. Stores of one process share nothing but the folder, as
// those of several processes do: a lock by flock(2) is the open file's, and so is a pipe's end.
func backend(t testing.TB, s system) drivertest.Backend {
	folder := t.TempDir() + "/locks"
	var mu sync.Mutex
	var stores []*Store
	openStore := func(t testing.TB) *Store {
		store, err := open(folder, s)
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		mu.Lock()
		defer mu.Unlock()
		stores = append(stores, store)
		return store
	}
	lose := func(name string) {
		store := openStore(t)
		err := store.step(context.Background(), name, func(st *machine.State, _ time.Time) []machine.Message {
			st.Lose()
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, store.Close())
	}
	return drivertest.Backend{
		Open:   func(t testing.TB) driver.Store { return openStore(t) },
		Delete: lose,
		Kill: func(t testing.TB) (driver.Store, func()) {
			store := openStore(t)
			return store, func() { _ = store.finish(peers.abandon) }
		},
		Late: func(t testing.TB) drivertest.LateStore {
			w, store := new(drivertest.Way), openStore(t)
			store.arrive = w.Travel
			return w.To(store)
		},
		Restart: func(data bool) {
			mu.Lock()
			defer mu.Unlock()
			names, err := stores[0].names(t.Context(), "")
			require.NoError(t, err)
			for _, name := range names {
				if !data {
					mu.Unlock()
					lose(name)
					mu.Lock()
				}
			}
			for _, store := range stores {
				store.missed()
			}
		},
		StepClock: func(time.Duration) {}, // the folder's clock is not that of the wall
	}
}

// mailboxes are peers in memory.
type mailboxes struct {
	mu  sync.Mutex
	all map[string]*mailbox
}

type mailbox struct {
	of       *mailboxes
	id       string
	messages chan []byte
	end      chan struct{}
	as       presence // guarded by mailboxes.mu
	watched  map[string]bool
	running  sync.WaitGroup
}

func newMailboxes() *mailboxes { return &mailboxes{all: make(map[string]*mailbox)} }

func (all *mailboxes) open(_ int, id string, receive func([]byte), _ func()) (peers, error) {
	m := &mailbox{of: all, id: id, messages: make(chan []byte, 1000), end: make(chan struct{}), watched: make(map[string]bool)}
	m.running.Go(func() {
		for {
			select {
			case b := <-m.messages:
				receive(b)
			case <-m.end:
				return
			}
		}
	})
	all.mu.Lock()
	defer all.mu.Unlock()
	all.all[id] = m
	return m, nil
}

func (m *mailbox) find(id string) (*mailbox, presence) {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	other := m.of.all[id]
	return other, other.as
}

func (m *mailbox) restore() {}

func (m *mailbox) look(id string) presence {
	_, as := m.find(id)
	return as
}

func (m *mailbox) send(id string, message []byte) {
	if other, as := m.find(id); as == present {
		other.messages <- message
	}
}

func (m *mailbox) watch(id string, ended func()) (done bool) {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	if other := m.of.all[id]; !m.watched[id] && m.as == present {
		m.watched[id] = true
		m.running.Go(func() {
			select {
			case <-other.end:
				ended()
			case <-m.end:
			}
		})
	}
	return true
}

func (*mailbox) unwatch() {} // there are no files

func (m *mailbox) presence() (*os.File, error) { return nil, nil }

func (m *mailbox) abandon() { m.leave(dead) }
func (m *mailbox) close()   { m.leave(closed) }

func (m *mailbox) leave(as presence) {
	m.of.mu.Lock()
	m.as = as
	m.of.mu.Unlock()
	close(m.end)
	m.running.Wait()
}
