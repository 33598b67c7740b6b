package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/acl"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/idempotency"
	"github.com/leasewheel/leasewheel/lock/idempotency/redisreplies"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// examplePattern is the pattern of names in SECURITY.md.
const examplePattern = "orders:*"

// leastUser returns the ACL user that leasewheel acl prints for the given uses, and for
// locks unless they stand apart from locks. Its password is "secret".
func leastUser(t *testing.T, uses ...string) []string {
	t.Helper()
	for _, use := range uses {
		require.True(t, slices.ContainsFunc(acl.Uses(examplePattern), func(u acl.Use) bool { return u.Flag == use }), use)
	}
	wanted := acl.UsesOf(examplePattern, func(flag string) bool { return slices.Contains(uses, flag) })
	return append([]string{"leasewheel", "on", ">secret"}, acl.RulesOf(wanted)...)
}

// SECURITY.md has the rules that leasewheel acl prints, each use with what it adds.
func TestSecurityDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(moduleDir(t), "SECURITY.md"))
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)\n```\n((?:user |  ).*?)```").FindAllSubmatch(text, -1)
	uses := acl.Uses(examplePattern)
	require.Len(t, blocks, len(uses))
	rulesOf := func(flag string) []string {
		return acl.RulesOf(acl.UsesOf(examplePattern, func(of string) bool { return of == flag }))
	}
	for i, u := range uses {
		builtOn := "locks"
		if u.Flag == "force" {
			builtOn = "inspect"
		}
		rules, less := rulesOf(u.Flag), rulesOf(builtOn)
		if u.Apart || u.Flag == "locks" {
			rules, less = slices.Insert(rules, 0, "user", "leasewheel", "on", ">PASSWORD"), nil
		}
		rules = slices.DeleteFunc(rules, func(rule string) bool { return slices.Contains(less, rule) })
		assert.Equal(t, rules, strings.Fields(string(blocks[i][1])), u.Flag)
		if u.Flag != "locks" {
			assert.Regexp(t, "\\(`--"+u.Flag+"`", string(text), "the flag is named")
		}
	}
}

// The ACL user in SECURITY.md can do all that a lock needs, and nothing else; the same
// applies to the additions for other uses.
func TestLeastUser(t *testing.T) {
	t.Parallel()
	all := []string{"fair", "read-write", "semaphore", "plain", "inspect", "force"}
	for _, test := range []struct {
		name string
		uses []string
		use  func(t *testing.T, admin redis.UniversalClient, newClient func() redis.UniversalClient)
	}{
		{"Mutex", nil, func(*testing.T, redis.UniversalClient, func() redis.UniversalClient) {}},
		{"Fair", []string{"fair"}, useFairLocks},
		{"ReadWrite", []string{"read-write"}, useReadWriteLocks},
		{"Semaphore", []string{"semaphore"}, useSemaphores},
		{"Plain", []string{"plain"}, usePlainLocks},
		{"Replies", []string{"replies"}, useReplies},
		{"Replicas", []string{"replicas"}, useReplicatedLocks},
		{"Inspect", all, func(t *testing.T, admin redis.UniversalClient, newClient func() redis.UniversalClient) {
			useFairLocks(t, admin, newClient)
			useReadWriteLocks(t, admin, newClient)
			useSemaphores(t, admin, newClient)
			usePlainLocks(t, admin, newClient)
			inspectLocks(t, newClient)
			inspectPlainLocks(t, newClient)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rules := leastUser(t, test.uses...)
			server := redistest.Start(t, redistest.Config{Users: []string{strings.Join(rules, " ")}})
			admin := server.Client(t)
			require.NoError(t, admin.ConfigResetStat(t.Context()).Err())
			options := server.Options()
			options.Username, options.Password = rules[0], "secret"
			newClient := func() redis.UniversalClient { return redis.NewClient(options) }

			useLocks(t, admin, newClient)
			test.use(t, admin, newClient)
			assert.Empty(t, refused(t, admin))
			assert.Equal(t, allowed(rules), called(t, admin), "allowed, and needed")

			other, _ := newTestLocker(t, newClient())
			_, err := other.Mutex("payments:1").TryLock(t.Context())
			require.ErrorContains(t, err, "NOPERM", "another name")
		})
	}
}

// One pattern has the rights of the middleware for HTTP: to its locks, and to replies with the
// same prefix.
func TestLeastUserOfIdempotency(t *testing.T) {
	t.Parallel()
	rules := acl.RulesOf(acl.UsesOf("idempotency:*", func(flag string) bool { return flag == "replies" }))
	server := redistest.Start(t, redistest.Config{Users: []string{"leasewheel on >secret " + strings.Join(rules, " ")}})
	options := server.Options()
	options.Username, options.Password = "leasewheel", "secret"
	locker, store := newTestLocker(t, redis.NewClient(options))
	once, err := idempotency.New(locker, redisreplies.New(store, "idempotency:"), idempotency.Config{})
	require.NoError(t, err)
	h := once(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, replayed := range []string{"", "true"} {
		r := httptest.NewRequest(http.MethodPost, "/orders", http.NoBody)
		r.Header.Set("Idempotency-Key", "42")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, replayed, w.Header().Get("Idempotent-Replayed"))
	}
	assert.Empty(t, refused(t, server.Client(t)))
}

func TestLeastUserInCluster(t *testing.T) {
	t.Parallel()
	rules := leastUser(t, "fair", "read-write", "semaphore", "plain", "inspect", "force", "replicas", "cluster")
	cluster := startCluster(t, strings.Join(rules, " "))
	newClient := func() redis.UniversalClient {
		return redis.NewClusterClient(clusterOptions(cluster, rules[0], "secret"))
	}

	admin := clusterClient(t, cluster, "", "")
	useLocks(t, admin, newClient)
	useFairLocks(t, admin, newClient)
	useReadWriteLocks(t, admin, newClient)
	useSemaphores(t, admin, newClient)
	usePlainLocks(t, admin, newClient)
	useReplicatedLocks(t, admin, newClient)
	inspectLocks(t, newClient)
	inspectPlainLocks(t, newClient)
	for _, node := range cluster.Nodes {
		assert.Empty(t, refused(t, node.Client(t)))
	}
}

// useLocks makes two clients acquire, wait, renew, release and lose a lock.
func useLocks(t *testing.T, admin redis.UniversalClient, newClient func() redis.UniversalClient) {
	t.Helper()
	const name = "orders:42"
	first, store := newTestLocker(t, newClient())
	second, _ := newTestLocker(t, newClient())
	require.NoError(t, store.Ping(t.Context()))

	lease, err := first.Mutex(name).Lock(t.Context())
	require.NoError(t, err)
	again, err := first.Mutex(name).Lock(lease.Context()) // reentrant
	require.NoError(t, err)
	granted := make(chan error, 1)
	go func() {
		lease, err := second.Mutex(name).Lock(t.Context())
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		granted <- err
	}()
	inLine := func() bool {
		return admin.ZLexCount(t.Context(), "leasewheel_lock_line:{orders:42}", "-", "+").Val() == 1
	}
	commandtest.Eventually(t, "in the queue", inLine)
	require.Equal(t, renewal.Renewed, renew(t.Context(), store, lease, driver.KindMutex))
	require.NoError(t, again.Unlock(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, <-granted)
	if one, ok := admin.(*redis.Client); ok { // before the next wait, which would use the same subscription
		commandtest.Eventually(t, "unsubscribed", func() bool { return slices.Contains(called(t, one), "unsubscribe") })
	}

	// A counter that Redisson's fenced lock has counted with is kept without an end.
	const counter = "redisson_lock_token:{orders:42}"
	require.NoError(t, admin.Set(t.Context(), counter, lease.Token()+1, time.Minute).Err())
	endless, _ := newLocker(t, newClient(), redisstore.Config{FenceTTL: -1}, lock.Config{})
	for _, locker := range []*lock.Locker{first, endless, endless} {
		lease, err = locker.Mutex(name).Lock(t.Context()) // it may be left to others for a while
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	require.Equal(t, time.Duration(-1), admin.PTTL(t.Context(), counter).Val())

	lease, err = first.Mutex(name).Lock(t.Context())
	require.NoError(t, err)
	go func() { granted <- second.Mutex(name).Do(t.Context(), func(context.Context) error { return nil }) }()
	commandtest.Eventually(t, "in the queue again", inLine)
	require.NoError(t, admin.Rename(t.Context(), name, "{"+name+"}:taken").Err())
	require.NotEqual(t, renewal.Renewed, renew(t.Context(), store, lease, driver.KindMutex))
	require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
	require.NoError(t, <-granted)
	require.NoError(t, second.Close()) // and is no longer subscribed
}

// useReplies loads and replaces a stored reply.
func useReplies(t *testing.T, _ redis.UniversalClient, newClient func() redis.UniversalClient) {
	t.Helper()
	_, store := newTestLocker(t, newClient())
	replies := redisreplies.New(store, "orders:")
	for _, token := range []int64{0, 1} {
		record, err := replies.Load(t.Context(), "42")
		require.NoError(t, err)
		require.Equal(t, token, record.Token)
		_, err = replies.Swap(t.Context(), "42", idempotency.Record{Token: 1}, time.Minute)
		require.NoError(t, err)
	}
}

// useFairLocks makes waiters of a fair lock queue, give up, die, come back among
// Redisson's, and be granted the lock.
func useFairLocks(t *testing.T, admin redis.UniversalClient, newClient func() redis.UniversalClient) {
	t.Helper()
	const (
		holder  = "c0ffee00-0000-4000-8000-000000000001:1"
		dead    = "c0ffee00-0000-4000-8000-000000000002:1"
		next    = "c0ffee00-0000-4000-8000-000000000003:1"
		brief   = "c0ffee00-0000-4000-8000-000000000004:1"
		dropped = "c0ffee00-0000-4000-8000-000000000005:1"
		theirs  = "c0ffee00-0000-4000-8000-000000000006:1"
		other   = "c0ffee00-0000-4000-8000-000000000007:1"
	)
	_, store := newTestLocker(t, newClient())
	hold := func(owner string, wait time.Duration) *driver.Hold {
		return &driver.Hold{Kind: driver.KindFair, Name: "orders:43", Owner: owner, Count: 1, TTL: time.Minute, Queue: driver.Queue{Keep: wait}}
	}
	asks := func(owner string, wait time.Duration) driver.Answer {
		answer, err := store.Acquire(t.Context(), hold(owner, wait))
		require.NoError(t, err)
		return answer
	}
	gone := func(owner string) {
		h := hold(owner, 0)
		h.Count = 0
		_, err := store.Release(t.Context(), h)
		require.NoError(t, err)
	}
	asks(holder, 0)
	asks(dead, time.Millisecond)
	asks(next, time.Minute)
	asks(brief, time.Minute)
	sub, err := store.Subscribe(commandtest.Bounded(t), hold(next, time.Minute), func(driver.Notice) {})
	require.NoError(t, err)
	sub.Close()
	_, err = store.KeepPlaces(t.Context(), "orders:43", []string{next, brief}, time.Minute)
	require.NoError(t, err)
	gone(brief)
	for range 2 { // silent for longer than its place was kept
		awaitLater(t, admin)
		asks(dead, time.Millisecond)
	}
	awaitLater(t, admin)
	asks(next, time.Minute)
	gone(holder)
	assert.Equal(t, driver.Granted, asks(next, time.Minute).Verdict)

	// A waiter of Redisson's, for which the queue stays; and one that it has dropped.
	asks(dropped, time.Minute)
	client := newClient()
	defer func() { assert.NoError(t, client.Close()) }()
	const list, timeouts = "redisson_lock_queue:{orders:43}", "redisson_lock_timeout:{orders:43}"
	require.NoError(t, client.Eval(t.Context(), `
		redis.call('lpop', KEYS[1])
		redis.call('zrem', KEYS[2], '`+dropped+`')
		redis.call('rpush', KEYS[1], '`+theirs+`')
		return redis.call('zadd', KEYS[2], 1, '`+theirs+`')`, []string{list, timeouts}).Err())
	asks(other, time.Millisecond) // after one whose time is over
	asks(dropped, time.Millisecond)
	require.NoError(t, client.Eval(t.Context(), `return redis.call('rpush', KEYS[1], '`+theirs+`') + redis.call('zadd', KEYS[2], 'inf', '`+theirs+`')`,
		[]string{list, timeouts}).Err())
	asks(other, time.Millisecond)
	gone(theirs)
	gone(other)
	// More dead than one run skips, and one that has left only its place.
	require.NoError(t, client.Eval(t.Context(), `
		for i = 1, 150 do
			redis.call('rpush', KEYS[1], ARGV[1] .. i)
			redis.call('zadd', KEYS[2], 1, ARGV[1] .. i)
		end
		return redis.call('zadd', KEYS[3], 1, ARGV[1] .. 151)`,
		[]string{list, timeouts, "leasewheel_lock_places:{orders:43}"}, "c0ffee00-0000-4000-8000-000000000008:").Err())
	awaitLater(t, admin) // also the one that Redisson has dropped is dead
	gone(next)           // and finds all of them dead
	asks(other, time.Millisecond)
	gone(other)
}

// useReadWriteLocks makes readers and a writer wait for each other, renew, and read on
// where they wrote.
func useReadWriteLocks(t *testing.T, admin redis.UniversalClient, newClient func() redis.UniversalClient) {
	t.Helper()
	first, store := newTestLocker(t, newClient())
	second, _ := newTestLocker(t, newClient())
	rw, theirs := first.ReadWrite("orders:44"), second.ReadWrite("orders:44").WritersFirst()

	reader, err := rw.Read().Lock(t.Context())
	require.NoError(t, err)
	again, err := rw.Read().Lock(reader.Context())
	require.NoError(t, err)
	written := make(chan error, 1)
	go func() {
		written <- theirs.Write().Do(t.Context(), func(ctx context.Context) error {
			reader, err := theirs.Read().Lock(ctx)
			if err != nil {
				return err
			}
			assert.Equal(t, renewal.Renewed, renew(ctx, store, reader, driver.KindRead))
			return reader.Unlock(ctx)
		})
	}()
	commandtest.Eventually(t, "claimed", func() bool { return admin.Touch(t.Context(), "leasewheel_lock_claim:{orders:44}").Val() == 1 })
	require.Equal(t, renewal.Renewed, renew(t.Context(), store, reader, driver.KindRead))
	require.NoError(t, again.Unlock(t.Context()))
	require.NoError(t, reader.Unlock(t.Context()))
	require.NoError(t, <-written)
}

// useSemaphores waits for permits, with and without a lease, and for a latch, uses,
// renews and releases them, and lets them expire.
func useSemaphores(t *testing.T, admin redis.UniversalClient, newClient func() redis.UniversalClient) {
	t.Helper()
	first, store := newTestLocker(t, newClient())
	second, _ := newTestLocker(t, newClient())
	work := commandtest.Bounded(t)

	mine, theirs := first.Semaphore("orders:45"), second.Semaphore("orders:45")
	_, err := mine.TrySetPermits(work, 1)
	require.NoError(t, err)
	require.NoError(t, mine.Acquire(work, 1))
	acquired := make(chan error, 1)
	go func() { acquired <- theirs.Acquire(work, 3) }()
	require.NoError(t, mine.Release(work, 1))
	require.NoError(t, mine.AddPermits(work, 2))
	require.NoError(t, <-acquired)
	_, err = mine.Drain(work)
	require.NoError(t, err)

	permits := first.Permits("orders:46")
	_, err = permits.TrySetPermits(work, 2)
	require.NoError(t, err)
	require.NoError(t, permits.SetPermits(work, 2))
	lease, err := permits.One().Lock(work)
	require.NoError(t, err)
	const held = "{orders:46}:timeout"
	kept := admin.ZRevRange(work, held, 0, -1).Val()
	_, err = permits.One().With(lock.Options{Fixed: true}).Lock(work)
	require.NoError(t, err)
	_, err = permits.One().TryLock(work)
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	for _, permit := range admin.ZRevRange(work, held, 0, -1).Val() {
		if !slices.Contains(kept, permit) { // the fixed one, which ends
			require.NoError(t, admin.ZIncrBy(work, held, -1e15, permit).Err())
		}
	}
	other, err := second.Permits("orders:46").One().Lock(work)
	require.NoError(t, err)
	require.Equal(t, renewal.Renewed, renew(work, store, lease, driver.KindPermit))
	require.NoError(t, lease.Unlock(work))
	require.NoError(t, other.Unlock(work))

	brief := first.Permits("orders:40")
	_, err = brief.TrySetPermitsFor(work, 1, time.Hour)
	require.NoError(t, err)
	_, err = brief.One().With(lock.Options{Fixed: true}).Lock(work)
	require.NoError(t, err)
	require.NoError(t, admin.Del(work, "orders:40").Err()) // the number ends before its permits
	_, err = brief.TrySetPermits(work, 1)
	require.NoError(t, err)

	for _, count := range []int64{1, 2} { // counted down, and deleted
		latch := first.Latch("orders:47")
		_, err = latch.TrySetCount(work, count)
		require.NoError(t, err)
		opened := make(chan error, 1)
		go func() { opened <- second.Latch("orders:47").Wait(work) }()
		require.NoError(t, latch.CountDown(work))
		_, err = latch.Delete(work)
		require.NoError(t, err)
		require.NoError(t, <-opened)
	}
}

// plainFormat is the format whose locks redsync and redislock know.
var plainFormat = redisstore.Config{Format: redisstore.FormatPlain}

// usePlainLocks acquires, waits for and renews a plain lock, leaves it to a peer that
// holds it, and releases it while others wait.
func usePlainLocks(t *testing.T, _ redis.UniversalClient, newClient func() redis.UniversalClient) {
	t.Helper()
	const name = "orders:48"
	first, _ := newLocker(t, newClient(), plainFormat, longLeases)
	second, store := newLocker(t, newClient(), plainFormat, longLeases)
	lease, err := first.Mutex(name).Lock(t.Context())
	require.NoError(t, err)
	again, err := first.Mutex(name).Lock(lease.Context())
	require.NoError(t, err)
	sub, err := store.Subscribe(commandtest.Bounded(t), &driver.Hold{Kind: driver.KindMutex, Name: name, Owner: second.ClientID() + ":1"}, func(driver.Notice) {})
	require.NoError(t, err) // so that a subscriber receives the release, and grants alternate
	require.Equal(t, renewal.Renewed, renew(t.Context(), store, lease, driver.KindMutex))
	require.NoError(t, again.Unlock(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()))
	sub.Close()
	require.NoError(t, second.Mutex(name).Do(t.Context(), func(context.Context) error { return nil }))

	peer := newClient()
	defer func() { assert.NoError(t, peer.Close()) }()
	require.NoError(t, peer.Set(t.Context(), name, "of a peer's", 200*time.Millisecond).Err())
	require.NoError(t, first.Mutex(name).Do(t.Context(), func(context.Context) error { return nil }))
}

// useReplicatedLocks requests a grant that replicas have, of which there are none.
func useReplicatedLocks(t *testing.T, _ redis.UniversalClient, newClient func() redis.UniversalClient) {
	t.Helper()
	replicated := redisstore.Config{Replicas: 1, ReplicaTimeout: time.Millisecond}
	_, store := newLocker(t, newClient(), replicated, lock.Config{})
	owner := "c0ffee00-0000-4000-8000-000000000008:1"
	h := &driver.Hold{Name: "orders:49", Owner: owner, Count: 1, TTL: time.Minute}
	_, err := store.Acquire(commandtest.Bounded(t), h)
	require.ErrorIs(t, err, redisstore.ErrUnreplicated)
	h.Count = 0
	_, err = store.Release(commandtest.Bounded(t), h)
	require.NoError(t, err)
}

// inspectPlainLocks inspects a plain lock and forces it open.
func inspectPlainLocks(t *testing.T, newClient func() redis.UniversalClient) {
	t.Helper()
	locker, _ := newLocker(t, newClient(), plainFormat, lock.Config{})
	lease, err := locker.Mutex("orders:50").Lock(t.Context())
	require.NoError(t, err)
	for info, err := range locker.List(t.Context(), "orders:5?") {
		require.NoError(t, err)
		assert.Equal(t, lease.Name(), info.Name)
	}
	info, err := locker.ForceRelease(t.Context(), lease.Name())
	require.NoError(t, err)
	assert.True(t, info.Held())
}

// renew renews a lease, as the watchdog does.
func renew(ctx context.Context, store *redisstore.Store, lease *lock.Lease, kind driver.Kind) renewal.Outcome {
	items := []renewal.Item{{Key: lease.Name(), Owner: lease.Owner(), Ref: kind, TTL: longLeases.TTL}}
	store.Renew(ctx, items)
	return items[0].Outcome
}

// awaitLater waits until the server's clock is 2 ms later.
func awaitLater(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	begun := client.Time(t.Context()).Val()
	commandtest.Eventually(t, "later", func() bool { return client.Time(t.Context()).Val().Sub(begun) > 2*time.Millisecond })
}

// inspectLocks inspects locks of every kind, held and awaited, and forces them open.
func inspectLocks(t *testing.T, newClient func() redis.UniversalClient) {
	t.Helper()
	locker, store := newLocker(t, newClient(), redisstore.Config{}, lock.Config{})
	var names []string
	for _, m := range []*lock.Mutex{
		locker.Mutex("orders:1"), locker.Fair("orders:2"), locker.ReadWrite("orders:3").Read(), locker.ReadWrite("orders:4").Write(),
	} {
		_, err := m.Lock(t.Context())
		require.NoError(t, err)
		names = append(names, m.Name())
	}
	for i := range 2 * driver.MaxTold { // of which only a part is listed
		_, err := locker.ReadWrite("orders:3").Read().Lock(t.Context())
		require.NoError(t, err)
		hold := &driver.Hold{
			Kind: driver.KindFair, Name: "orders:2", Owner: fmt.Sprintf("%s:%d", locker.ClientID(), 1000+i),
			Count: 1, TTL: time.Minute, Queue: driver.Queue{Keep: time.Millisecond},
		}
		_, err = store.Acquire(t.Context(), hold)
		require.NoError(t, err)
	}
	client := newClient()
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	awaitLater(t, client) // the waiters are dead, and dropped
	hold := &driver.Hold{
		Kind: driver.KindMutex, Name: "orders:1", Owner: locker.ClientID() + ":1000", Count: 1, TTL: time.Minute, Queue: driver.Queue{Subscribed: true},
	}
	answer, err := store.Acquire(t.Context(), hold) // and is in the queue
	require.NoError(t, err)
	require.Equal(t, driver.Refused, answer.Verdict)
	permits := locker.Permits("orders:5")
	_, err = permits.TrySetPermits(t.Context(), 1)
	require.NoError(t, err)
	_, err = permits.One().Lock(t.Context())
	require.NoError(t, err)
	for _, kind := range []driver.Kind{driver.KindPermit, driver.KindSemaphore, driver.KindLatch} {
		info, err := locker.Inspect(t.Context(), "orders:5", kind)
		require.NoError(t, err)
		assert.True(t, info.Counted)
	}
	listed := append(slices.Clone(names), "orders:5")
	for info, err := range locker.List(t.Context(), "orders:*") {
		require.NoError(t, err)
		assert.Contains(t, listed, info.Name)
	}
	for _, name := range names {
		info, err := locker.Inspect(t.Context(), name, driver.KindMutex)
		require.NoError(t, err)
		assert.True(t, info.Held())
		_, err = locker.ForceRelease(t.Context(), name)
		require.NoError(t, err)
	}
}

// refused returns the commands that the server did not allow. Newer go-redis sends newer
// servers its name and asks for their plans, and continues if that is not allowed.
func refused(t *testing.T, admin *redis.Client) []string {
	t.Helper()
	entries, err := admin.ACLLog(t.Context(), 100).Result()
	require.NoError(t, err)
	var refused []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Object, "client|") {
			refused = append(refused, entry.Reason+" "+entry.Object)
		}
	}
	return refused
}

// allowed returns the commands that an ACL user may call.
func allowed(rules []string) []string {
	var commands []string
	for _, rule := range rules {
		if command, ok := strings.CutPrefix(rule, "+"); ok {
			commands = append(commands, command)
		}
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}

// called returns the commands that were called since the statistics were reset,
// but for those of this test itself.
func called(t *testing.T, admin *redis.Client) []string {
	t.Helper()
	ours := []string{"acl|log", "config|resetstat", "info", "rename", "touch", "zincrby", "zlexcount", "zrevrange"}
	info, err := admin.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	var commands []string
	for line := range strings.Lines(info) {
		command, _, _ := strings.Cut(line, ":")
		if command, ok := strings.CutPrefix(command, "cmdstat_"); ok && !slices.Contains(ours, command) && !strings.HasPrefix(command, "client|") {
			commands = append(commands, command)
		}
	}
	slices.Sort(commands)
	return commands
}

// longLeases are not lost, and no request of theirs fails because the machine is slow. Waiters
// ask again soon for those that tests take away.
var longLeases = lock.Config{TTL: 10 * time.Minute, Poll: 50 * time.Millisecond, RequestTimeout: commandtest.Patience}

func newTestLocker(t *testing.T, client redis.UniversalClient) (*lock.Locker, *redisstore.Store) {
	t.Helper()
	return newLocker(t, client, redisstore.Config{}, longLeases)
}

// newLocker returns a locker on a store on a client; they end with the test.
func newLocker(t *testing.T, client redis.UniversalClient, kept redisstore.Config, c lock.Config) (*lock.Locker, *redisstore.Store) {
	t.Helper()
	store, err := redisstore.New(client, kept)
	require.NoError(t, err)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, commandtest.Patience)
	locker, err := lock.New(store, c)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, locker.Close())
		assert.NoError(t, store.Close())
		assert.NoError(t, client.Close())
	})
	return locker, store
}
