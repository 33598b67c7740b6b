//go:build linux

package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// bubbled returns the system of a bubble, since a start called id.
func bubbled(id string, mail *mailboxes) system {
	start := time.Now()
	return system{format + " " + id, func() time.Duration { return time.Since(start) }, time.Now, syscall.Pwrite, mail.open}
}

func openIn(t testing.TB, folder string, s system) *Store {
	store, err := open(folder, s)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// settle has everything done in a bubble, also what waits for a file that is in use.
func settle() { time.Sleep(time.Second) }

func hold(k driver.Kind, name, owner string) *driver.Hold {
	return &driver.Hold{Kind: k, Name: name, Owner: owner, Count: 1, TTL: time.Hour}
}

func acquire(t testing.TB, s *Store, h *driver.Hold) driver.Answer {
	t.Helper()
	a, err := s.Acquire(t.Context(), h)
	require.NoError(t, err)
	return a
}

// What a process held is free once it has ended, of each kind; what a store held that was closed
// is not, and neither is what was kept.
func TestTheEndOfAProcess(t *testing.T) {
	const permit = "00000000000000000000000000000001"
	for _, k := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite, driver.KindPermit} {
		for name, leave := range map[string]func(*Store){
			"killed": func(s *Store) { _ = s.finish(peers.abandon) },
			"closed": func(s *Store) { _ = s.Close() },
		} {
			t.Run(k.String()+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					folder, system := t.TempDir(), bubbled("bubble", newMailboxes())
					require.NoError(t, os.Chmod(folder, 0o700)) //nolint:gosec // a folder
					mine, theirs := openIn(t, folder, system), openIn(t, folder, system)
					h, other := hold(k, "a", "me:1"), hold(k, "a", "you:1")
					if k == driver.KindRead {
						other.Kind = driver.KindWrite
					}
					if k == driver.KindPermit {
						h.Owner, other.Owner = permit, "1"+permit[1:]
						_, err := mine.Count(t.Context(), &driver.Count{Kind: k, Name: "a", Op: driver.CountCreate, N: 1, Request: "1"})
						require.NoError(t, err)
					}
					notices := make(chan driver.Notice, 100)
					sub, err := theirs.Subscribe(t.Context(), other, func(n driver.Notice) { notices <- n })
					require.NoError(t, err)
					defer sub.Close()
					require.Equal(t, driver.Granted, acquire(t, mine, h).Verdict)
					if k != driver.KindPermit {
						h.Count = 2
						require.Equal(t, driver.Granted, acquire(t, mine, h).Verdict)
						h.Count = 1
						held, err := mine.Release(t.Context(), h)
						require.NoError(t, err)
						require.True(t, held, "one of two holds is left")
					}
					require.Equal(t, driver.Refused, acquire(t, theirs, other).Verdict)
					leave(mine)
					settle()
					if a := acquire(t, theirs, other); name == "closed" {
						assert.Equal(t, driver.Refused, a.Verdict)
						assert.Empty(t, notices)
					} else {
						assert.Equal(t, driver.Granted, a.Verdict)
						assert.NotEmpty(t, notices)
					}
				})
			})
		}
	}
}

// However many processes have a lock, the end of each is noticed at once.
func TestTheEndOfOneOfMany(t *testing.T) {
	const processes = 100 // far more than a bound that a map's order decides
	permit := func(n int) *driver.Hold { return hold(driver.KindPermit, "a", fmt.Sprintf("%032d", n)) }
	for ended := range processes / 10 {
		synctest.Test(t, func(t *testing.T) {
			folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
			waiting, notices := openIn(t, folder, system), make(chan driver.Notice, 100)
			_, err := waiting.Count(t.Context(), &driver.Count{Kind: driver.KindPermit, Name: "a", Op: driver.CountCreate, N: processes, Request: "1"})
			require.NoError(t, err)
			var stores []*Store
			for n := range processes {
				stores = append(stores, openIn(t, folder, system))
				require.Equal(t, driver.Granted, acquire(t, stores[n], permit(n)).Verdict)
			}
			sub, err := waiting.Subscribe(t.Context(), permit(processes), func(n driver.Notice) { notices <- n })
			require.NoError(t, err)
			defer sub.Close()
			require.Equal(t, driver.Refused, acquire(t, waiting, permit(processes)).Verdict)
			_ = stores[ended].finish(peers.abandon)
			settle()
			require.NotEmpty(t, notices, "broken promise: process %d has ended", ended)
			require.Equal(t, driver.Granted, acquire(t, waiting, permit(processes)).Verdict)
		})
	}
}

// The end of a process is noticed by those that waited before it came, too, as a writer has before a
// further reader, also if a writer of that one's process waits.
func TestTheEndOfALaterProcess(t *testing.T) {
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
			first, waiting, later := openIn(t, folder, system), openIn(t, folder, system), openIn(t, folder, system)
			acquire(t, first, hold(driver.KindRead, "a", "me:1"))
			write, notices := hold(driver.KindWrite, "a", "you:1"), make(chan driver.Notice, 100)
			sub, err := waiting.Subscribe(t.Context(), write, func(n driver.Notice) { notices <- n })
			require.NoError(t, err)
			defer sub.Close()
			require.Equal(t, driver.Refused, acquire(t, waiting, write).Verdict)
			if waits {
				sub, err := later.Subscribe(t.Context(), hold(driver.KindWrite, "a", "they:2"), func(driver.Notice) {})
				require.NoError(t, err)
				defer sub.Close()
			}
			require.Equal(t, driver.Granted, acquire(t, later, hold(driver.KindRead, "a", "they:1")).Verdict)
			_, err = first.Release(t.Context(), &driver.Hold{Kind: driver.KindRead, Name: "a", Owner: "me:1"})
			require.NoError(t, err)
			settle()
			require.Empty(t, notices)
			_ = later.finish(peers.abandon)
			settle()
			require.NotEmpty(t, notices, "broken promise: it waits for a process that has ended")
			assert.Equal(t, driver.Granted, acquire(t, waiting, write).Verdict)
		})
	}
}

// The end of a process is noticed by the waiters of all names, although another one was stopped as it used the
// file of some.
func TestTheEndBesideFilesInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
		holder, waiting := openIn(t, folder, system), openIn(t, folder, system)
		var woken []chan driver.Notice
		for _, name := range []string{"a", "b", "c"} {
			acquire(t, holder, hold(driver.KindMutex, name, "me:1"))
			h, notices := hold(driver.KindMutex, name, "you:1"), make(chan driver.Notice, 100)
			sub, err := waiting.Subscribe(t.Context(), h, func(n driver.Notice) { notices <- n })
			require.NoError(t, err)
			defer sub.Close()
			require.Equal(t, driver.Refused, acquire(t, waiting, h).Verdict)
			woken = append(woken, notices)
		}
		for _, name := range []string{"a", "b"} {
			file, err := os.Open(folder + "/" + fileOf(pathOfLocks, name))
			require.NoError(t, err)
			defer file.Close()
			require.NoError(t, unix.Flock(int(file.Fd()), unix.LOCK_EX))
		}
		_ = holder.finish(peers.abandon)
		settle()
		for _, notices := range woken {
			require.NotEmpty(t, notices, "broken promise: it waits for a file of another name")
		}
	})
}

// A store that is closed costs those that wait beside it no request: of hundreds of processes for one
// name, as those of cron, each would make one at the end of each other.
func TestACloseCostsOthersNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
		var requests atomic.Int64
		var stores []*Store
		for n := range 10 {
			store, waiting := openIn(t, folder, system), hold(driver.KindMutex, "a", fmt.Sprintf("%d:1", n))
			store.arrive = func() { requests.Add(1) }
			sub, err := store.Subscribe(t.Context(), waiting, func(driver.Notice) {})
			require.NoError(t, err)
			defer sub.Close()
			waiting.Queue.Subscribed = true
			acquire(t, store, waiting)
			stores = append(stores, store)
		}
		settle()
		before := requests.Load()
		require.NoError(t, stores[1].Close())
		settle()
		assert.Equal(t, before, requests.Load())
		_ = stores[0].finish(peers.abandon) // the holder
		settle()
		assert.Greater(t, requests.Load(), before, "the end of a process may free the lock")
	})
}

// silent are peers that send nothing.
type silent struct{ peers }

func (silent) send(string, []byte) {}

// A process that comes later, and has those that wait before it watch it, costs them no request.
func TestALaterProcessCostsOthersNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
		acquire(t, openIn(t, folder, system), hold(driver.KindRead, "a", "me:1"))
		var requests atomic.Int64
		notices := make(chan driver.Notice, 100)
		for n := range 10 {
			store, waiting := openIn(t, folder, system), hold(driver.KindWrite, "a", fmt.Sprintf("%d:1", n))
			sub, err := store.Subscribe(t.Context(), waiting, func(n driver.Notice) { notices <- n })
			require.NoError(t, err)
			defer sub.Close()
			require.Equal(t, driver.Refused, acquire(t, store, waiting).Verdict)
			store.arrive = func() { requests.Add(1) }
		}
		later := openIn(t, folder, system)
		require.Equal(t, driver.Granted, acquire(t, later, hold(driver.KindRead, "a", "they:1")).Verdict)
		settle()
		assert.Zero(t, requests.Load())
		require.Empty(t, notices)
		_ = later.finish(peers.abandon)
		settle()
		assert.Len(t, notices, 10, "each has noticed its end")
	})
}

// A process may end between a release, which grants the lock to a waiter, and its message.
func TestAReleaseWithoutItsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
		mine, theirs := openIn(t, folder, system), openIn(t, folder, system)
		mine.peers = silent{mine.peers}
		waiting := hold(driver.KindMutex, "a", "you:1")
		waiting.Queue.Subscribed = true
		notices := make(chan driver.Notice, 100)
		sub, err := theirs.Subscribe(t.Context(), waiting, func(n driver.Notice) { notices <- n })
		require.NoError(t, err)
		defer sub.Close()
		acquire(t, mine, hold(driver.KindMutex, "a", "me:1"))
		require.Equal(t, driver.Refused, acquire(t, theirs, waiting).Verdict)
		_, err = mine.Release(t.Context(), &driver.Hold{Name: "a", Owner: "me:1"})
		require.NoError(t, err)
		settle()
		require.Empty(t, notices)
		_ = mine.finish(peers.abandon)
		settle()
		require.NotEmpty(t, notices)
		assert.Equal(t, driver.Notice{}, <-notices)
		assert.Equal(t, driver.Granted, acquire(t, theirs, waiting).Verdict)
	})
}

// A hold that is kept outlives its process, with all of its permits.
func TestWhatIsKept(t *testing.T) {
	const permits = "00000000000000000000000000000001*2"
	for kind, owners := range map[driver.Kind][2]string{driver.KindMutex: {"me:1", "you:1"}, driver.KindPermit: {permits, "1" + permits[1:]}} {
		synctest.Test(t, func(t *testing.T) {
			folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
			mine, theirs := openIn(t, folder, system), openIn(t, folder, system)
			h, other := hold(kind, "a", owners[0]), hold(kind, "a", owners[1])
			if kind == driver.KindPermit {
				h.Semaphore.Permits, other.Semaphore.Permits = 2, 1
				_, err := mine.Count(t.Context(), &driver.Count{Kind: kind, Name: "a", Op: driver.CountCreate, N: 2, Request: "1"})
				require.NoError(t, err)
			}
			acquire(t, mine, h)
			h.Count, h.Keep = 0, time.Minute
			held, err := mine.Release(t.Context(), h)
			require.NoError(t, err)
			require.True(t, held)
			_ = mine.finish(peers.abandon)
			assert.Equal(t, driver.Answer{Wait: time.Minute}, acquire(t, theirs, other))
		})
	}
}

// With the next start of the system all locks have ended, and tokens are larger, although the
// wall clock was set back and the lock's file was removed.
func TestTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir() + "/locks"
		first := openIn(t, folder, bubbled("first", newMailboxes()))
		h := hold(driver.KindMutex, "a", "me:1")
		time.Sleep(time.Hour)
		last := acquire(t, first, h)
		_, err := first.Release(t.Context(), &driver.Hold{Name: "a", Owner: "me:1"})
		require.NoError(t, err)
		kept := acquire(t, first, hold(driver.KindMutex, "b", "me:1"))
		time.Sleep(time.Second)
		first.sweep(sweepEvery)
		names, err := first.names(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, []string{"b"}, names, "a was removed")
		require.NoError(t, first.Close())

		next := bubbled("next", newMailboxes())
		next.wall = func() time.Time { return time.Now().Add(-24 * time.Hour) }
		second := openIn(t, folder, next)
		assert.Greater(t, acquire(t, second, hold(driver.KindMutex, "a", "you:1")).Token, last.Token)
		assert.Greater(t, acquire(t, second, hold(driver.KindMutex, "b", "you:1")).Token, kept.Token)

		next.id = "2" + next.id[1:]
		_, err = open(folder, next)
		require.ErrorContains(t, err, "another version of leasewheel")
	})
}

// A folder is not shared by processes that read different starts of the system, as in containers of systemd-nspawn
// and LXC: each would take the other's locks for those of an earlier start. Pipes of processes that have ended do not count.
func TestContainersWithABootOfTheirOwn(t *testing.T) {
	folder, host := t.TempDir()+"/locks", mustSystem(t)
	container := host
	container.id = format + " another"
	container.wall = func() time.Time { return time.Now().Add(time.Second) } // the clock is slewed between the two
	refused := func(system system) {
		t.Helper()
		s, err := open(folder, system)
		if err == nil {
			a, _ := s.Acquire(t.Context(), hold(driver.KindMutex, "a", "you:1"))
			require.NoError(t, s.Close())
			require.NotEqual(t, driver.Granted, a.Verdict, "broken promise: two hold the lock")
		}
		require.ErrorContains(t, err, "boot_id")
	}
	first := openIn(t, folder, host)
	acquire(t, first, hold(driver.KindMutex, "a", "me:1"))
	refused(container)
	_ = first.finish(peers.abandon)
	require.NoError(t, os.WriteFile(filepath.Join(folder, pathOfStores, "foreign"), nil, 0o600))
	second := openIn(t, folder, container)
	require.Equal(t, driver.Granted, acquire(t, second, hold(driver.KindMutex, "a", "you:1")).Verdict)
	refused(host)

	// One that was opened before the clock was made there, and has no pipe yet, fails.
	second.system, second.base = host, first.base
	third := openIn(t, folder, container)
	_, err := second.Acquire(t.Context(), hold(driver.KindMutex, "b", "you:2"))
	require.ErrorIs(t, err, driver.ErrNotDone)
	require.NotErrorIs(t, err, driver.ErrUnavailable, "no waiting mends it")
	require.Equal(t, driver.Granted, acquire(t, third, hold(driver.KindMutex, "b", "me:2")).Verdict)
}

// Of two processes that read different starts of the system and open a folder at the same time one is refused: each
// sets the clock before it has a pipe, and the other sees none then.
func TestContainersThatStartAtOnce(t *testing.T) {
	host := mustSystem(t)
	container := host
	container.id = format + " another"
	// within has a step between the clock and the pipe of a store.
	within := func(s system, step func()) system {
		s.peers = func(dir int, id string, receive func([]byte), missed func()) (peers, error) {
			step()
			return openFIFO(dir, id, receive, missed)
		}
		return s
	}
	t.Run("AfterTheOther", func(t *testing.T) {
		folder := t.TempDir() + "/locks"
		var other *Store
		s, err := open(folder, within(host, func() { other = openIn(t, folder, container) }))
		if err == nil {
			require.NoError(t, s.Close())
		}
		require.ErrorContains(t, err, "boot_id")
		require.Equal(t, driver.Granted, acquire(t, other, hold(driver.KindMutex, "a", "me:1")).Verdict)
		stores, err := other.list(pathOfStores)
		require.NoError(t, err)
		require.Equal(t, []string{other.id}, stores, "the one that was refused leaves no pipe")
	})
	t.Run("BeforeTheOther", func(t *testing.T) {
		folder := t.TempDir() + "/locks"
		set, opened, refused := make(chan struct{}), make(chan struct{}), make(chan error)
		first := openIn(t, folder, within(host, func() {
			go func() {
				s, err := open(folder, within(container, func() { close(set); <-opened }))
				if err == nil {
					err = s.Close()
				}
				refused <- err
			}()
			<-set
		}))
		require.Equal(t, driver.Granted, acquire(t, first, hold(driver.KindMutex, "a", "me:1")).Verdict)
		close(opened)
		require.ErrorContains(t, <-refused, "boot_id")
		require.Equal(t, driver.Granted, acquire(t, first, hold(driver.KindMutex, "b", "me:2")).Verdict)
	})
}

// Of a client without a record an inspection has the id alone, and no time in 1970.
func TestAClientWithoutARecord(t *testing.T) {
	s := openIn(t, t.TempDir()+"/locks", mustSystem(t))
	acquire(t, s, hold(driver.KindMutex, "a", "me:1"))
	info, err := s.Inspect(t.Context(), "a", driver.KindMutex)
	require.NoError(t, err)
	require.Len(t, info.Holders, 1)
	require.Equal(t, driver.Client{ID: "me"}, info.Holders[0].Client)
}

// What has ended is removed, without a further request: locks, records of clients, and pipes of
// processes that have ended, but only once nothing belongs to them.
func TestWhatIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
		s, other := openIn(t, folder, system), openIn(t, folder, system)
		for i := range 20 {
			acquire(t, s, hold(driver.KindMutex, fmt.Sprint(i), "me:1"))
		}
		require.NoError(t, s.Announce(t.Context(), driver.Client{ID: "me"}, time.Minute))
		require.NoError(t, s.Announce(t.Context(), driver.Client{ID: "living"}, time.Hour))
		require.NoError(t, os.WriteFile(filepath.Join(folder, pathOfStores, other.id), nil, 0o600)) // for its pipe
		acquire(t, other, hold(driver.KindFair, "dead", "you:1"))
		_ = other.finish(peers.abandon)
		require.NoError(t, os.WriteFile(filepath.Join(folder, pathOfLocks, ".directory"), nil, 0o600), "of a file manager")
		require.NoError(t, os.MkdirAll(filepath.Join(folder, pathOfLocks, "00", "foreign"), 0o700))
		files := func() (n int) {
			for _, path := range []string{pathOfLocks, pathOfClients, pathOfStores} {
				found, err := filepath.Glob(filepath.Join(folder, path, "*", "*"))
				require.NoError(t, err)
				n += len(found)
			}
			found, err := filepath.Glob(filepath.Join(folder, pathOfStores, "*"))
			require.NoError(t, err)
			return n + len(found)
		}
		assert.Equal(t, 1+20+2+1+1, files())
		time.Sleep(5 * sweepEvery)
		assert.Equal(t, 1+20+1, files())
		names, err := s.names(t.Context(), "")
		require.NoError(t, err)
		assert.Len(t, names, 20)
		time.Sleep(time.Hour + 5*sweepEvery)
		assert.Equal(t, 1, files())
		s.mu.Lock()
		defer s.mu.Unlock()
		assert.Nil(t, s.sweeps, "nothing is left that ends")
	})
}

// In a folder with more names than a brief process has the time to look at, such processes remove what has
// ended, whichever files that is in.
func TestBriefSweepsReachAllFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
		var looks atomic.Int64 // at the clock: each takes a ms
		uptime := system.uptime
		system.uptime = func() time.Duration { return uptime() + time.Duration(looks.Add(1))*time.Millisecond }
		s := openIn(t, folder, system)
		for i := range 100 {
			_, err := s.Count(t.Context(), &driver.Count{Kind: driver.KindSemaphore, Name: fmt.Sprint(i), Op: driver.CountAdd, N: 1, Request: "1"})
			require.NoError(t, err)
		}
		for i := range 10 {
			acquire(t, s, hold(driver.KindMutex, fmt.Sprint("ended", i), "me:1"))
			require.NoError(t, s.Announce(t.Context(), driver.Client{ID: fmt.Sprint(i)}, time.Minute))
		}
		require.NoError(t, s.Close())
		time.Sleep(2 * time.Hour)
		left := 0
		for range 200 {
			require.NoError(t, openIn(t, folder, system).Close())
			time.Sleep(sweepEvery)
			locks, err := filepath.Glob(filepath.Join(folder, pathOfLocks, "*", "*"))
			require.NoError(t, err)
			clients, err := filepath.Glob(filepath.Join(folder, pathOfClients, "*", "*"))
			require.NoError(t, err)
			if left = len(locks) + len(clients) - 100; left == 0 {
				break
			}
		}
		assert.Zero(t, left)
	})
}

// A sweep that cannot use a file, as while the file system is full or another process has it locked, grants
// nothing. The pipe of the process that held the lock stays for a later sweep, which frees it. Requests
// for that file fail meanwhile.
func TestASweepThatFails(t *testing.T) {
	for name, want := range map[string]error{"a full file system": unix.ENOSPC, "files in use": errBusy} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testSweepThatFails(t, want) }) })
	}
}

func testSweepThatFails(t *testing.T, want error) {
	folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
	var full atomic.Bool
	system.pwrite = func(fd int, b []byte, at int64) (int, error) {
		if full.Load() && bytes.Contains(b, []byte("me:1")) { // not the folder's clock, which is overwritten
			return 0, unix.ENOSPC
		}
		return syscall.Pwrite(fd, b, at)
	}
	s, other, third := openIn(t, folder, system), openIn(t, folder, system), openIn(t, folder, system)
	pipe := filepath.Join(folder, pathOfStores, other.id)
	require.NoError(t, os.WriteFile(pipe, nil, 0o600))
	waiting, notices := hold(driver.KindMutex, "a", "me:1"), make(chan driver.Notice, 100)
	waiting.Queue.Subscribed = true
	sub, err := s.Subscribe(t.Context(), waiting, func(n driver.Notice) { notices <- n })
	require.NoError(t, err)
	defer sub.Close()
	acquire(t, other, hold(driver.KindMutex, "a", "you:1"))
	require.Equal(t, driver.Refused, acquire(t, s, waiting).Verdict)

	var used []*file
	if want == errBusy { //nolint:errorlint // the case's own
		for _, path := range []string{fileOf(pathOfLocks, "a"), fileOf(pathOfClients, "me:1")} {
			f, err := third.open(t.Context(), path, true)
			require.NoError(t, err)
			used = append(used, f)
		}
	}
	full.Store(want == unix.ENOSPC) //nolint:errorlint // the case's own
	_ = other.finish(peers.abandon)
	time.Sleep(3 * sweepEvery)
	_, err = s.Acquire(t.Context(), waiting)
	for _, err := range []error{err, s.Announce(t.Context(), driver.Client{ID: "me:1"}, time.Minute)} {
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorIs(t, err, driver.ErrNotDone)
	}
	require.FileExists(t, pipe, "broken promise: what the process held is not free any more")
	for len(notices) > 0 {
		require.Equal(t, driver.Notice{}, <-notices, "broken promise: a grant that is not stored")
	}
	full.Store(false)
	for _, f := range used {
		f.close()
	}
	time.Sleep(3 * sweepEvery)
	require.NoFileExists(t, pipe)
	require.NotEmpty(t, notices)
	assert.Equal(t, "me:1", (<-notices).Owner)
	info, err := s.Inspect(t.Context(), "a", driver.KindMutex)
	require.NoError(t, err)
	assert.EqualValues(t, 1, info.HolderCount)
}

// A process that is stopped in the middle of a request fails the requests for its name at their
// deadlines, and no others.
func TestAStoppedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
		s, other := openIn(t, folder, system), openIn(t, folder, system)
		stopped, err := other.open(t.Context(), fileOf(pathOfLocks, "a"), true)
		require.NoError(t, err)
		for _, limit := range []time.Duration{time.Second / 2, 0, 2 * driver.DefaultRequestTimeout} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			if limit == 0 {
				ctx, limit = t.Context(), driver.DefaultRequestTimeout
			}
			begin := time.Now()
			_, err = s.Acquire(ctx, hold(driver.KindMutex, "a", "me:1"))
			cancel()
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.ErrorIs(t, err, driver.ErrNotDone)
			require.ErrorIs(t, err, errBusy)
			assert.GreaterOrEqual(t, time.Since(begin), limit)
			assert.LessOrEqual(t, time.Since(begin), limit+maxPause)
		}
		clock, err := other.open(t.Context(), pathOfClock, true)
		require.NoError(t, err)
		acquire(t, s, hold(driver.KindMutex, "b", "me:1"))
		clock.close()
		copied, err := unix.Dup(stopped.fd) // as a process has it that is being started
		require.NoError(t, err)
		defer unix.Close(copied)
		stopped.close()
		_, err = s.Acquire(overdue{t.Context()}, hold(driver.KindMutex, "a", "me:1"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, driver.ErrNotDone)
		assert.Equal(t, driver.Granted, acquire(t, s, hold(driver.KindMutex, "a", "me:2")).Verdict)
	})
}

// overdue is a context beyond its deadline whose timer is late, as after the process was stopped.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// Requests of one process for one name are carried out in the order of their arrival, and those that wait
// open no file: a thousand that each tried to lock it starved each other, and the holder's renewal.
func TestRequestsForOneNameInOrder(t *testing.T) {
	const requests = 100
	synctest.Test(t, func(t *testing.T) {
		folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
		s, other := openIn(t, folder, system), openIn(t, folder, system)
		path := fileOf(pathOfLocks, "a")
		used, err := other.open(t.Context(), path, true)
		require.NoError(t, err)
		var work sync.WaitGroup
		var order, inOrder []int // order is written by one request at a time
		for i := range requests {
			inOrder = append(inOrder, i)
			work.Go(func() {
				assert.NoError(t, s.step(t.Context(), "a", func(*machine.State, time.Time) []machine.Message {
					order = append(order, i)
					return nil
				}))
			})
			synctest.Wait()
		}
		open := slices.DeleteFunc(openFiles(t), func(target string) bool { return !strings.HasSuffix(target, path) })
		assert.Len(t, open, 2, "one of either store")
		brief, cancel := context.WithTimeout(t.Context(), driver.DefaultRequestTimeout/2)
		defer cancel()
		_, err = s.Acquire(brief, hold(driver.KindMutex, "a", "me:1"))
		require.ErrorIs(t, err, errQueued)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorIs(t, err, driver.ErrNotDone)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		used.close()
		work.Wait()
		assert.Equal(t, inOrder, order)
	})
}

// Who waits for a file that is removed meanwhile uses the next one, though the file has another name, as
// that of a backup by hard links.
func TestARemovedFile(t *testing.T) {
	t.Run("without another name", func(t *testing.T) { testRemovedFile(t, func(string) {}) })
	t.Run("with another name", func(t *testing.T) {
		testRemovedFile(t, func(path string) { require.NoError(t, os.Link(path, t.TempDir()+"/backup")) })
	})
}

func testRemovedFile(t *testing.T, link func(path string)) {
	dir := t.TempDir() + "/locks"
	s, other := openIn(t, dir, mustSystem(t)), openIn(t, dir, mustSystem(t))
	path := fileOf(pathOfLocks, "a")
	first, err := other.open(t.Context(), path, true)
	require.NoError(t, err)
	link(dir + "/" + path)
	waiting := make(chan *file)
	go func() {
		second, _ := s.open(context.Background(), path, true)
		waiting <- second
	}()
	for opened := 0; opened < 2; { // the second waits, or will
		opened = 0
		for _, target := range openFiles(t) {
			if strings.HasSuffix(target, path) {
				opened++
			}
		}
	}
	first.remove()
	first.close()
	second := <-waiting
	require.NotNil(t, second)
	require.NoError(t, second.write([]byte("content")))
	second.close()
	third, err := s.open(t.Context(), path, false)
	require.NoError(t, err)
	assert.Equal(t, "content", string(third.content))
	third.close()
}

// openFiles returns the paths of the files that this process has open.
func openFiles(t *testing.T) (paths []string) {
	links, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, link := range links {
		path, _ := os.Readlink(link) // it may be closed since
		paths = append(paths, path)
	}
	return paths
}

func mustSystem(t testing.TB) system {
	s, err := linux()
	require.NoError(t, err)
	return s
}

// A write that breaks off leaves what was there, or what was written, and fails: it leaves what was there if
// the error matches driver.ErrNotDone.
func TestBrokenWrites(t *testing.T) {
	s := openIn(t, t.TempDir()+"/locks", mustSystem(t))
	large, err := s.open(t.Context(), fileOf(pathOfLocks, "large"), true)
	require.NoError(t, err)
	require.ErrorIs(t, large.write(make([]byte, maxContent+1)), driver.ErrNotDone, "it would not be read")
	large.close()
	var files atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		left := -1           // bytes until the writes break off
		var once, short bool // the next write does not; no error is returned
		s.pwrite = func(fd int, b []byte, at int64) (int, error) {
			if left < 0 || left >= len(b) {
				left = max(left-len(b), -1)
				return syscall.Pwrite(fd, b, at)
			}
			n, _ := syscall.Pwrite(fd, b[:left], at)
			if left = 0; once {
				left = -1
			}
			if short {
				return n, nil
			}
			return n, errors.New("killed")
		}
		path := fileOf(pathOfLocks, fmt.Sprint(files.Add(1)))
		var want, broken []byte
		for range rapid.IntRange(1, 20).Draw(rt, "writes") {
			f, err := s.open(t.Context(), path, true)
			require.NoError(rt, err)
			if broken != nil && string(broken) == string(f.content) { // the bytes that it lacked were there
				want = broken
			}
			broken = nil
			require.Equal(rt, string(want), string(f.content))
			next := rapid.SliceOfN(rapid.Byte(), 1, 6000).Draw(rt, "content")
			left = -1
			breaks := rapid.Bool().Draw(rt, "breaks")
			if breaks {
				left = rapid.IntRange(0, len(next)+slotSize-1).Draw(rt, "after")
				once, short = rapid.Bool().Draw(rt, "once"), rapid.Bool().Draw(rt, "short")
			}
			err = f.write(next)
			require.Equal(rt, breaks, err != nil)
			switch {
			case err == nil:
				want = next
			case !errors.Is(err, driver.ErrNotDone):
				broken = next
			}
			if left = -1; rapid.IntRange(0, 9).Draw(rt, "remove") == 0 {
				f.remove()
				want, broken = nil, nil
			}
			f.close()
		}
	})
}

// What is read without a lock, beside writes, is found.
func TestContentsBesideWrites(t *testing.T) {
	s := openIn(t, t.TempDir()+"/locks", mustSystem(t))
	path := fileOf(pathOfLocks, "a")
	content := make([]byte, 50_000)
	write := func() {
		f, err := s.open(context.Background(), path, true)
		if assert.NoError(t, err) {
			content[len(content)-1]++
			assert.NoError(t, f.write(content))
			f.close()
		}
	}
	write()
	var end atomic.Bool
	var writes sync.WaitGroup
	writes.Go(func() {
		for !end.Load() && !t.Failed() {
			write()
		}
	})
	found := 0
	for range 500 {
		assert.NoError(t, s.contents(path, func(b []byte) { found += len(b) }))
	}
	end.Store(true)
	writes.Wait()
	assert.Equal(t, 500*len(content), found)
}

// A store whose pipe was full notifies its subscriptions: messages may have been lost.
func TestAFullPipe(t *testing.T) {
	s := openIn(t, t.TempDir()+"/locks", mustSystem(t))
	for _, size := range []int{10, 100, 1500, pipeBuf / 2} {
		var received, missed atomic.Int64
		begun, reading := make(chan struct{}, 1), make(chan struct{})
		p, err := openFIFO(s.fd, fmt.Sprint("full", size), func([]byte) {
			if received.Add(1) == 1 {
				begun <- struct{}{}
				<-reading
			}
		}, func() { missed.Add(1) })
		require.NoError(t, err)
		s.peers.send(fmt.Sprint("full", size), make([]byte, size))
		<-begun
		assert.Zero(t, missed.Load())
		const sent = 8000
		for range sent {
			s.peers.send(fmt.Sprint("full", size), make([]byte, size))
		}
		close(reading)
		for missed.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		p.close()
		assert.Less(t, received.Load(), int64(sent))
	}
}

// A larger pipe, as of a kernel with larger pages, is read whole: only then is it seen to be full.
func TestALargeFullPipe(t *testing.T) {
	var ends [2]int
	require.NoError(t, unix.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC))
	room, err := unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, 4*pipeRoom)
	require.NoError(t, err)
	for err == nil {
		_, err = unix.Write(ends[1], make([]byte, 2)) // an empty message
	}
	require.ErrorIs(t, err, unix.EAGAIN)
	require.NoError(t, unix.Close(ends[1]))
	own, missed := os.NewFile(uintptr(ends[0]), "pipe"), false
	defer own.Close()
	p := &fifos{received: func([]byte) {}, missed: func() { missed = true }}
	p.receive(own, room)
	assert.True(t, missed)
}

// A message that breaks off counts as one that was lost.
func TestAMessageThatBreaksOff(t *testing.T) {
	own, sender, err := os.Pipe()
	require.NoError(t, err)
	defer own.Close()
	_, err = sender.Write([]byte{1, 0, 'a', 3, 0, 'b'})
	require.NoError(t, err)
	require.NoError(t, sender.Close())
	var received []string
	missed := 0
	p := &fifos{received: func(b []byte) { received = append(received, string(b)) }, missed: func() { missed++ }}
	p.receive(own, pipeRoom)
	assert.Equal(t, []string{"a"}, received)
	assert.Equal(t, 1, missed)
}

// A grant by release reaches the waiter in another process, with its token. One whose message would not be
// written to a pipe at once, as of a very long name, has the waiter ask again.
func TestAMessageOfAGrant(t *testing.T) {
	for _, long := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			folder, system, name := t.TempDir()+"/locks", bubbled("bubble", newMailboxes()), "a"
			if long {
				name = strings.Repeat("a", pipeBuf)
			}
			mine, theirs := openIn(t, folder, system), openIn(t, folder, system)
			waiting, notices := hold(driver.KindMutex, name, "you:1"), make(chan driver.Notice, 100)
			waiting.Queue.Subscribed = true
			sub, err := theirs.Subscribe(t.Context(), waiting, func(n driver.Notice) { notices <- n })
			require.NoError(t, err)
			defer sub.Close()
			before := acquire(t, mine, hold(driver.KindMutex, name, "me:1")).Token
			require.Equal(t, driver.Refused, acquire(t, theirs, waiting).Verdict)
			_, err = mine.Release(t.Context(), &driver.Hold{Name: name, Owner: "me:1"})
			require.NoError(t, err)
			granted := time.Now()
			settle()
			require.NotEmpty(t, notices)
			for len(notices) > 0 {
				n := <-notices
				if long {
					require.Equal(t, driver.Notice{}, n)
					continue
				}
				assert.Equal(t, "you:1", n.Owner)
				assert.Greater(t, n.Token, before)
				assert.Positive(t, n.TTL)
				assert.Equal(t, granted.UnixMicro(), n.At.UnixMicro())
			}
			assert.Equal(t, driver.Granted, acquire(t, theirs, waiting).Verdict)
		})
	}
}

// A store that cannot be opened leaves no file open.
func TestAPipeThatCannotBeRenamed(t *testing.T) {
	s := openIn(t, t.TempDir()+"/locks", mustSystem(t))
	require.NoError(t, unix.Mkdirat(s.fd, pathOfStores+"taken", 0o700))
	_, err := openFIFO(s.fd, "taken", func([]byte) {}, func() {})
	require.Error(t, err)
	assert.Equal(t, dead, s.peers.(*fifos).look("new-taken"))
}

// notified awaits a notice.
func notified(t testing.TB, notices <-chan driver.Notice) {
	t.Helper()
	select {
	case <-notices:
	case <-time.After(time.Minute):
		t.Fatal("broken promise: the waiter was not notified")
	}
}

// A process whose pipe was deleted, as with all that is in the folder, is woken again after a sweep, and its
// end is noticed. A pipe that another process keeps open is not replaced: its end would be noticed too early.
func TestADeletedPipe(t *testing.T) {
	folder := t.TempDir() + "/locks"
	mine, theirs, lent := openIn(t, folder, mustSystem(t)), openIn(t, folder, mustSystem(t)), openIn(t, folder, mustSystem(t))
	kept, err := lent.Presence()
	require.NoError(t, err)
	defer kept.Close()
	waiting, notices := hold(driver.KindMutex, "a", "you:1"), make(chan driver.Notice, 100)
	sub, err := theirs.Subscribe(t.Context(), waiting, func(n driver.Notice) { notices <- n })
	require.NoError(t, err)
	defer sub.Close()
	for _, what := range []string{"stores", "clients", "locks", "clock"} {
		require.NoError(t, os.RemoveAll(folder+"/"+what))
	}
	_, err = lent.Presence()
	require.ErrorIs(t, err, unix.ENOENT)
	own := hold(driver.KindMutex, "a", "you:2")
	require.Equal(t, driver.Granted, acquire(t, theirs, own).Verdict)
	require.Equal(t, driver.Refused, acquire(t, theirs, waiting).Verdict)
	_, err = theirs.Release(t.Context(), &driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: "you:2"})
	require.NoError(t, err)
	require.Len(t, notices, 1, "broken promise: a process needs a pipe to notify itself")
	<-notices
	for _, s := range []*Store{mine, theirs, lent} {
		s.sweep(time.Minute)
	}
	notified(t, notices) // some may have been missed
	h := hold(driver.KindMutex, "a", "me:1")
	require.Equal(t, driver.Granted, acquire(t, mine, h).Verdict)
	require.Equal(t, driver.Refused, acquire(t, theirs, waiting).Verdict)
	_, err = mine.Release(t.Context(), &driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: "me:1"})
	require.NoError(t, err)
	notified(t, notices)
	require.Equal(t, driver.Granted, acquire(t, mine, h).Verdict)
	require.Equal(t, driver.Refused, acquire(t, theirs, waiting).Verdict)
	_ = mine.finish(peers.abandon)
	notified(t, notices)
	require.Equal(t, driver.Granted, acquire(t, theirs, waiting).Verdict)
	require.Equal(t, closed, theirs.peers.look(lent.id))
	require.NoError(t, theirs.Close())
	require.Equal(t, closed, lent.peers.look(theirs.id), "what it has is left to its TTL")
	require.Equal(t, dead, lent.peers.look(mine.id))
}

// A process whose pipe was deleted lends one that others find.
func TestPresenceOfADeletedPipe(t *testing.T) {
	folder := t.TempDir() + "/locks"
	s, other := openIn(t, folder, mustSystem(t)), openIn(t, folder, mustSystem(t))
	require.NoError(t, os.RemoveAll(folder+"/stores"))
	file, err := s.Presence()
	require.NoError(t, err)
	defer file.Close()
	_ = s.finish(peers.abandon)
	require.Equal(t, present, other.peers.look(s.id))
}

// A store that cannot be opened, as another process has kept the clock locked, may be later: that is found in
// the time of a request.
func TestAClockThatIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
		require.NoError(t, openIn(t, folder, system).Close())
		clock, err := os.Open(folder + "/" + pathOfClock)
		require.NoError(t, err)
		defer clock.Close()
		require.NoError(t, unix.Flock(int(clock.Fd()), unix.LOCK_EX))
		begin := time.Now()
		_, err = open(folder, system)
		require.ErrorIs(t, err, errBusy)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		assert.LessOrEqual(t, time.Since(begin), driver.DefaultRequestTimeout+maxPause)
	})
}

// The end of a process is noticed also if its pipe was made anew after those that wait had theirs again.
func TestAPipeMadeAnewIsWatched(t *testing.T) {
	folder := t.TempDir() + "/locks"
	mine, theirs := openIn(t, folder, mustSystem(t)), openIn(t, folder, mustSystem(t))
	require.Equal(t, driver.Granted, acquire(t, mine, hold(driver.KindMutex, "a", "me:1")).Verdict)
	waiting, notices := hold(driver.KindMutex, "a", "you:1"), make(chan driver.Notice, 100)
	sub, err := theirs.Subscribe(t.Context(), waiting, func(n driver.Notice) { notices <- n })
	require.NoError(t, err)
	defer sub.Close()
	noticed := func() {
		t.Helper()
		notified(t, notices)
		require.Equal(t, driver.Refused, acquire(t, theirs, waiting).Verdict)
	}
	require.Equal(t, driver.Refused, acquire(t, theirs, waiting).Verdict)
	require.NoError(t, os.RemoveAll(folder+"/stores"))
	theirs.peers.restore()
	noticed()
	mine.peers.restore()
	noticed()
	_ = mine.finish(peers.abandon)
	notified(t, notices)
	require.Equal(t, driver.Granted, acquire(t, theirs, waiting).Verdict)
}

// A process may end after it was looked at and before it is watched.
func TestAWatchThatComesTooLate(t *testing.T) {
	s := openIn(t, t.TempDir()+"/locks", mustSystem(t))
	p, err := openFIFO(s.fd, "gone", func([]byte) {}, func() {})
	require.NoError(t, err)
	p.abandon()
	ended, done := make(chan struct{}), false
	s.peers.watch("gone", func() {
		close(ended)
		done = true
	})
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the end of the process was not noticed")
	}
	require.NoError(t, s.Close())
	assert.True(t, done, "Close waits for what was called")
}

// The end of a process is noticed within a second, also by one that had no descriptor to watch it: its waiter
// asks again, and so watches it later.
func TestAWatchWithoutDescriptors(t *testing.T) {
	folder := t.TempDir() + "/locks"
	mine, theirs := openIn(t, folder, mustSystem(t)), openIn(t, folder, mustSystem(t))
	require.Equal(t, driver.Granted, acquire(t, mine, hold(driver.KindMutex, "a", "me:1")).Verdict)
	waiting, notices := hold(driver.KindMutex, "a", "you:1"), make(chan driver.Notice, 100)
	theirs.peers = scarce{theirs.peers}
	sub, err := theirs.Subscribe(t.Context(), waiting, func(n driver.Notice) { notices <- n })
	require.NoError(t, err)
	defer sub.Close()
	require.Equal(t, driver.Refused, acquire(t, theirs, waiting).Verdict)
	_ = mine.finish(peers.abandon)
	theirs.mu.Lock()
	theirs.sweeps.Stop() // a sweep would notice it, too, after a minute
	theirs.mu.Unlock()
	notified(t, notices)
	require.Equal(t, driver.Granted, acquire(t, theirs, waiting).Verdict)
}

// scarce are peers without a descriptor to watch others.
type scarce struct{ peers }

func (s scarce) watch(id string, ended func()) (done bool) {
	var limit unix.Rlimit
	must(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 3
	must(unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	defer func() { must(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	return s.peers.watch(id, ended)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// A process has no file of others open while nothing waits in it.
func TestTheEndOfAllWaitingClosesFiles(t *testing.T) {
	folder := t.TempDir() + "/locks"
	mine, theirs := openIn(t, folder, mustSystem(t)), openIn(t, folder, mustSystem(t))
	watched := theirs.peers.(*fifos)
	require.Equal(t, driver.Granted, acquire(t, mine, hold(driver.KindMutex, "a", "me:1")).Verdict)
	waiting, notices := hold(driver.KindMutex, "a", "you:1"), make(chan driver.Notice, 100)
	for range 2 {
		sub, err := theirs.Subscribe(t.Context(), waiting, func(n driver.Notice) { notices <- n })
		require.NoError(t, err)
		require.Len(t, watched.watched, 1)
		file := watched.watched[mine.id]
		sub.Close()
		assert.Empty(t, watched.watched)
		require.ErrorIs(t, file.Close(), os.ErrClosed)
	}
	sub, err := theirs.Subscribe(t.Context(), waiting, func(n driver.Notice) { notices <- n })
	require.NoError(t, err)
	defer sub.Close()
	assert.Empty(t, notices)
	_ = mine.finish(peers.abandon)
	notified(t, notices)
}

// A process that is stopped in the middle of a sweep, or of a request, delays no Close. It ends the requests
// that wait for that process, and later ones fail.
func TestCloseBesideAStoppedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
		s, other := openIn(t, folder, system), openIn(t, folder, system)
		for _, path := range []string{pathOfClock, fileOf(pathOfLocks, "a")} {
			stopped, err := other.open(t.Context(), path, true)
			require.NoError(t, err)
			defer stopped.close()
		}
		request := func() error {
			_, err := s.Acquire(t.Context(), hold(driver.KindMutex, "a", "me:1"))
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- request() }()
		synctest.Wait()
		begin := time.Now()
		require.NoError(t, s.Close())
		assert.LessOrEqual(t, time.Since(begin), closeSweep)
		_, list := s.names(t.Context(), "")
		_, presence := s.Presence()
		for _, err := range []error{<-ended, request(), s.Announce(t.Context(), driver.Client{ID: "me"}, time.Hour), list, presence} {
			require.ErrorIs(t, err, errClosed)
			require.ErrorIs(t, err, driver.ErrNotDone)
		}
	})
}

// What another user could have prepared, or what other machines share, is refused.
func TestFoldersThatAreRefused(t *testing.T) {
	parent := t.TempDir()
	good := filepath.Join(parent, "good")
	s, err := New(good)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for _, path := range []string{pathOfClock, pathOfLocks, pathOfStores} {
		stat, err := os.Stat(filepath.Join(good, path))
		require.NoError(t, err)
		assert.Zero(t, stat.Mode().Perm()&0o077, path)
	}
	require.NoError(t, os.Symlink(good, filepath.Join(parent, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(parent, "open"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(parent, "open"), 0o755)) //nolint:gosec // it is refused; the umask may be stricter
	require.NoError(t, os.WriteFile(filepath.Join(parent, "file"), nil, 0o600))
	stdin, err := os.Readlink("/proc/self/fd/0")
	require.NoError(t, err)
	for name, message := range map[string]string{"link": "a symbolic link", "link/": "a symbolic link", "open": "open to other users", "file": "not a directory"} {
		_, err := New(parent + "/" + name)
		require.ErrorContains(t, err, message)
		still, err := os.Readlink("/proc/self/fd/0") // the descriptor of an error's zero
		require.NoError(t, err)
		require.Equal(t, stdin, still)
		for _, open := range openFiles(t) {
			require.False(t, strings.HasPrefix(open, parent), open)
		}
	}
	require.ErrorContains(t, private(uint32(os.Geteuid()+1), unix.S_IFDIR|0o700), "belongs to user") //nolint:gosec // a user's id
	require.ErrorContains(t, local(unix.NFS_SUPER_MAGIC), "NFS")
	require.ErrorContains(t, local(-0xACB2BE), "CIFS") // 0xFF534D42 as an int32
	require.ErrorContains(t, local(0x7c7c6673), "Parallels")
	require.NoError(t, local(unix.TMPFS_MAGIC))

	victim := filepath.Join(parent, "victim")
	require.NoError(t, os.WriteFile(victim, []byte("mine"), 0o600))
	s, err = New(good)
	require.NoError(t, err)
	defer s.Close()
	path := filepath.Join(good, fileOf(pathOfLocks, "a"))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	// No waiting mends what else is there, so no waiter repeats its request.
	refused := func() error {
		_, err := s.Acquire(t.Context(), hold(driver.KindMutex, "a", "me:1"))
		require.ErrorContains(t, err, "is no file of this user")
		require.ErrorIs(t, err, driver.ErrNotDone)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		require.NoError(t, os.Remove(path))
		return err
	}
	require.NoError(t, os.Symlink(victim, path))
	require.ErrorIs(t, refused(), unix.ELOOP)
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(text))
	require.NoError(t, unix.Mkfifo(path, 0o600))
	require.Error(t, refused())
	require.NoError(t, os.Mkdir(path, 0o700))
	require.ErrorIs(t, refused(), unix.EISDIR)
	acquire(t, s, hold(driver.KindMutex, "a", "me:1"))
}

// An umask that takes rights of the user keeps no later process from the folder, or from a lock.
func TestAnUmaskThatTakesRights(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "locks")
	defer unix.Umask(unix.Umask(0o777))
	s, err := New(folder)
	require.NoError(t, err)
	defer s.Close()
	acquire(t, s, hold(driver.KindMutex, "a", "me:1"))
	require.NoError(t, s.Announce(t.Context(), driver.Client{ID: "me"}, time.Hour))
	pipes, files := 0, 0
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		require.NoError(t, err)
		stat, err := entry.Info()
		require.NoError(t, err)
		want := os.FileMode(modeOfFiles)
		switch stat.Mode().Type() {
		case os.ModeDir:
			want = modeOfFolders
		case os.ModeNamedPipe:
			pipes++
		default:
			files++
		}
		assert.Equal(t, want, stat.Mode().Perm(), path)
		return nil
	}))
	assert.Equal(t, 1, pipes)
	assert.Equal(t, 3, files, "the clock, a lock and a client")
}

// After the deletion of what is in a folder, or of its clock alone, all processes that go on to
// use it use one clock. One that cannot, as another has made a new clock meanwhile, is granted
// nothing: it would not see the other's locks.
func TestAFolderThatIsEmptied(t *testing.T) {
	for name, pattern := range map[string]string{"all": "*", "its clock": pathOfClock} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				folder, system := t.TempDir()+"/locks", bubbled("bubble", newMailboxes())
				slewed := system
				slewed.wall = func() time.Time { return time.Now().Add(time.Second) }
				remove := func() {
					paths, err := filepath.Glob(filepath.Join(folder, pattern))
					require.NoError(t, err)
					require.NotEmpty(t, paths)
					for _, path := range paths {
						require.NoError(t, os.RemoveAll(path))
					}
				}
				first := openIn(t, folder, system)
				acquire(t, first, hold(driver.KindMutex, "held", "me:1"))
				remove()
				require.Equal(t, driver.Granted, acquire(t, first, hold(driver.KindMutex, "a", "me:2")).Verdict)
				second := openIn(t, folder, slewed)
				require.Equal(t, driver.Refused, acquire(t, second, hold(driver.KindMutex, "a", "you:1")).Verdict)
				require.Equal(t, driver.Granted, acquire(t, second, hold(driver.KindMutex, "b", "you:2")).Verdict)
				require.Equal(t, driver.Refused, acquire(t, first, hold(driver.KindMutex, "b", "me:3")).Verdict)

				remove()
				third := openIn(t, folder, slewed)
				slewed.wall = func() time.Time { return time.Now().Add(time.Minute) }
				remove()
				fourth := openIn(t, folder, slewed)
				require.Equal(t, driver.Granted, acquire(t, fourth, hold(driver.KindMutex, "c", "you:3")).Verdict)
				for _, s := range []*Store{first, second, third} {
					for _, of := range []string{"c", "new"} {
						a, err := s.Acquire(t.Context(), hold(driver.KindMutex, of, "me:4"))
						require.ErrorIs(t, err, driver.ErrNotDone, "broken promise: %s is granted: %v", of, a)
						require.NotErrorIs(t, err, driver.ErrUnavailable, "no waiting mends it")
					}
				}
				again := openIn(t, folder, system)
				require.Equal(t, driver.Refused, acquire(t, again, hold(driver.KindMutex, "c", "you:4")).Verdict)
			})
		})
	}
}

// A store whose folder was deleted fails its requests, and closes.
func TestAFolderThatIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir() + "/locks"
		s := openIn(t, folder, bubbled("bubble", newMailboxes()))
		acquire(t, s, hold(driver.KindMutex, "a", "me:1"))
		require.NoError(t, os.RemoveAll(folder))
		for _, name := range []string{"a", "b"} {
			_, err := s.Acquire(t.Context(), hold(driver.KindMutex, name, "me:1"))
			require.ErrorIs(t, err, driver.ErrNotDone)
			require.ErrorIs(t, err, unix.ENOENT)
			require.NotErrorIs(t, err, driver.ErrUnavailable, "broken promise: no waiting makes the folder again")
		}
		time.Sleep(5 * sweepEvery)
		require.NoError(t, s.Close())
	})
}

// A process without a free descriptor gets an error with that reason, and not a list of fewer locks.
func TestListWithoutDescriptors(t *testing.T) {
	folder := t.TempDir() + "/locks"
	s := openIn(t, folder, mustSystem(t))
	acquire(t, s, hold(driver.KindMutex, "a", "me:1"))
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 3
	var errs []error
	var names []string
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	for info, err := range s.List(t.Context(), "", func(string) bool { return true }) {
		if err != nil {
			errs = append(errs, err)
		} else {
			names = append(names, info.Name)
		}
	}
	_, err := openFolder(folder)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.Equal(t, unix.EMFILE, err)
	require.NotEmpty(t, errs, "broken promise: %q are all locks", names)
	require.ErrorIs(t, errs[0], driver.ErrUnavailable)
	require.ErrorIs(t, errs[0], unix.EMFILE)
	for _, err := range s.List(t.Context(), "", func(string) bool { return true }) {
		require.NoError(t, err)
	}
}
