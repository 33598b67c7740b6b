package lock

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/wheel"
)

// A client's record in the store is written after its first grant, or its first place in the
// store's queue, and again every announceEvery. Without that it expires after announceTTL.
const (
	announceEvery = 10 * time.Minute
	announceTTL   = 3 * announceEvery
)

// newClient describes this process, with a new id.
func newClient(label string) driver.Client {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return driver.Client{
		ID:      newUUID(),
		Host:    host,
		Process: strings.ToValidUTF8(filepath.Base(os.Args[0]), "\uFFFD"), // stores keep texts
		PID:     os.Getpid(),
		Label:   label,
		Since:   time.Now(),
	}
}

// newUUID returns a random UUID of version 8. Redisson's clients use version 4, so a
// store can distinguish the two. The last six bytes are zero: see newPermitOwner.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:10]) // never fails
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// newPermitOwner returns the owner of n permits of one lease: the id of the first, and
// "*n" if n is above 1. An id is the client's, with the permit's number as its last six bytes,
// so that inspection finds the client: the format has no room for it beside the id. The ids of one
// lease differ in the last four.
func (l *Locker) newPermitOwner(n int64) string {
	several := uint64(max(n, 1)) //nolint:gosec // at most driver.MaxSeveral
	last := l.permits.Add(several)
	for uint32(last) < uint32(several) { //nolint:gosec // the last four bytes; they would begin again within the lease
		last = l.permits.Add(several)
	}
	first := (last - several + 1) & (1<<48 - 1)
	owner := strings.ReplaceAll(l.client.ID, "-", "")[:20] + fmt.Sprintf("%012x", first)
	if n > 1 {
		owner += "*" + strconv.FormatInt(n, 10)
	}
	return owner
}

// announcer maintains the record of a locker's client in the store. A failure does not
// affect any lock; it is logged.
type announcer struct {
	locker *Locker
	timer  wheel.Timer
	// begin announces the client, once. It is called with every grant and every place in the
	// store's queue: inspection shows both.
	begin func()

	// running bounds the requests. It outlives the locker's closed, because a cancelled
	// request may still reach the server after its caller has cleaned up there.
	running context.Context
	abandon context.CancelFunc

	mu      sync.Mutex
	stopped bool           // guarded by mu
	work    sync.WaitGroup // added to under mu, while not stopped
}

func (a *announcer) init(l *Locker) {
	a.locker, a.begin = l, sync.OnceFunc(a.announce)
	a.running, a.abandon = context.WithCancel(context.Background())
	a.timer.InitOnWorker(l.wheel, a.announce)
}

// announce writes the record in the background and schedules the next time.
func (a *announcer) announce() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return
	}
	a.work.Go(a.send)
	if _, err := a.timer.Arm(announceEvery); err != nil {
		a.warn(err)
	}
}

func (a *announcer) send() {
	l := a.locker
	ctx, cancel := context.WithDeadline(a.running, l.requestBy(l.config.RequestTimeout))
	defer cancel()
	announce := func() error { return l.store.Announce(ctx, l.client, announceTTL) }
	if err := l.protect("Store.Announce", l.client.ID, announce); err != nil && a.running.Err() == nil {
		a.warn(err)
	}
}

func (a *announcer) warn(err error) {
	a.locker.log.Warn("lock: the record of this client will be missing", "client", a.locker.client.ID, "err", err)
}

// stop ends the announcements and waits for the one in flight, as long as ctx allows. The
// record stays until its TTL, since others may still inspect it.
func (a *announcer) stop(ctx context.Context) {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	a.timer.Cancel()
	defer a.abandon()
	defer context.AfterFunc(ctx, a.abandon)()
	a.work.Wait()
}
