package pubsub

import (
	"bufio"
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// A connection without subscriptions is closed at its next check. A subscription that is
// made at that moment gets another one.
func TestIdleSubscriptionConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	s := New(func(context.Context, Channel) (Node, error) { return Node{Client: client}, nil }, func(error) {})
	defer s.Close()
	ended := make(chan struct{})
	var checks sync.WaitGroup
	checks.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				s.checkConns()
			}
		}
	})
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		sub, err := s.Subscribe(ctx, []Handler{{Channel: Channel{Name: "a"}}}, func(driver.Notice) {})
		cancel()
		if !assert.NoError(t, err) {
			break
		}
		sub.Close()
	}
	close(ended)
	checks.Wait()
}

// A refused subscription leaves the others of its connection as they are, those that are requested
// at the same time, too.
func TestRefusedSubscriptionAffectsNoOther(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{"half on nopass ~* +@all resetchannels &a &c"}})
	admin := server.Client(t)
	options := *admin.Options()
	options.Username, options.Password = "half", "any"
	client := redis.NewClient(&options)
	defer client.Close()
	var revoked, doubted atomic.Bool
	s := New(func(context.Context, Channel) (Node, error) { return Node{Client: client}, nil }, func(err error) {
		assert.True(t, revoked.Load(), err)
		doubted.Store(true)
	})
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	listen := func(notify func(driver.Notice), names ...string) (driver.Subscription, error) {
		var handlers []Handler
		for _, name := range names {
			handlers = append(handlers, Handler{Channel{Name: name}, func(owner string) (driver.Notice, bool) { return driver.Notice{Owner: owner}, true }})
		}
		return s.Subscribe(ctx, handlers, notify)
	}
	notices := make(chan driver.Notice, 100)
	keep := func(n driver.Notice) { notices <- n }
	next := func() (n driver.Notice) {
		select {
		case n = <-notices:
		case <-ctx.Done():
			require.Fail(t, "a message is missing")
		}
		return n
	}
	kept, err := listen(keep, "a")
	require.NoError(t, err)
	defer kept.Close()
	for range 20 {
		var both sync.WaitGroup
		both.Go(func() {
			_, err := listen(func(driver.Notice) {}, "b", "d")
			assert.ErrorContains(t, err, "NOPERM")
		})
		other, err := listen(keep, "c")
		both.Wait()
		require.NoError(t, err)
		for _, name := range []string{"a", "c"} {
			require.NoError(t, admin.Publish(ctx, name, name).Err())
			require.Equal(t, driver.Notice{Owner: name}, next(), "a message, and no other wake-up")
		}
		other.Close()
	}

	// The server ends a connection whose user loses a right. The others go on, without an end.
	lost, err := listen(func(driver.Notice) {}, "c")
	require.NoError(t, err)
	defer lost.Close()
	revoked.Store(true)
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "half", "resetchannels", "&a").Err())
	assert.Equal(t, driver.Notice{}, next(), "a message may have been missed")
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		cn, c := s.conns[""], s.channels[Channel{Name: "c"}]
		return cn != nil && len(cn.requests) == 0 && len(cn.channels) == 1 && c.conn == nil && doubted.Load()
	}, time.Minute, time.Millisecond, "the refusal has come, and the end of the connection was reported")
	require.NoError(t, admin.Publish(ctx, "a", "a").Err())
	assert.Equal(t, driver.Notice{Owner: "a"}, next())
}

// checkConns checks the connections, as is done every few seconds.
func (s *Subscriber) checkConns() {
	s.mu.Lock()
	conns := slices.Collect(maps.Values(s.conns))
	s.mu.Unlock()
	for _, cn := range conns {
		cn.silent.Store(0) // something was received
		cn.check()
	}
}

// The channels of a subscription end in the reverse of their order. A mutex's waiter on Redisson's
// channel counts as one of Redisson's without the channel before it.
func TestChannelsEndInReverse(t *testing.T) {
	t.Parallel()
	s, _, commands := monitored(t)
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		sub, err := s.Subscribe(ctx, []Handler{{Channel: Channel{Name: "a"}}, {Channel: Channel{Name: "b"}}, {Channel: Channel{Name: "c"}}}, func(driver.Notice) {})
		cancel()
		require.NoError(t, err)
		sub.Close()
		var ended []string
		for len(ended) < 3 && commands.Scan() {
			if _, name, unsubscribes := strings.Cut(strings.ToLower(commands.Text()), `"unsubscribe" `); unsubscribes {
				ended = append(ended, name)
			}
		}
		require.Equal(t, []string{`"c"`, `"b"`, `"a"`}, ended)
	}
}

// monitored returns a subscriber, its client, and the commands that its server receives.
func monitored(t *testing.T) (*Subscriber, *redis.Client, *bufio.Scanner) {
	t.Helper()
	server := redistest.Start(t, redistest.Config{})
	client := server.Client(t)
	s := New(func(context.Context, Channel) (Node, error) { return Node{Client: client}, nil }, func(error) {})
	t.Cleanup(s.Close)
	return s, client, monitor(t, server)
}

// monitor returns the commands that a server receives, a line each, for a minute at most.
func monitor(t *testing.T, server *redistest.Server) *bufio.Scanner {
	t.Helper()
	network, address := server.Addr()
	conn, err := net.DialTimeout(network, address, time.Minute)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Write([]byte("MONITOR\r\n"))
	require.NoError(t, err)
	lines := bufio.NewScanner(conn)
	require.True(t, lines.Scan(), "%v", lines.Err())
	require.Equal(t, "+OK", lines.Text())
	return lines
}

// The channels of a broken connection are subscribed to again in the order of each waiter.
func TestChannelsMoveInOrder(t *testing.T) {
	t.Parallel()
	s, client, commands := monitored(t)
	const waiters = 20
	for i := range waiters {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		sub, err := s.Subscribe(ctx, waiter(i), func(driver.Notice) {})
		cancel()
		require.NoError(t, err)
		defer sub.Close()
	}
	subscribed(t, commands, 3*waiters)
	require.NoError(t, client.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	requireInOrder(t, subscribed(t, commands, 3*waiters))
}

// Of several waiters that come at the same time, one subscribes to all the channels that they
// share, in their order.
func TestSharedChannelsBeginInOrder(t *testing.T) {
	t.Parallel()
	s, _, commands := monitored(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const rounds = 500
	for i := range rounds {
		var work sync.WaitGroup
		start := make(chan struct{})
		for range 4 {
			work.Go(func() {
				<-start
				sub, err := s.Subscribe(ctx, waiter(i), func(driver.Notice) {})
				if assert.NoError(t, err) {
					t.Cleanup(sub.Close)
				}
			})
		}
		close(start)
		work.Wait()
	}
	requireInOrder(t, subscribed(t, commands, 3*rounds))
}

// waiter returns the channels of a waiter, in their order.
func waiter(i int) (handlers []Handler) {
	for _, part := range []string{"a", "b", "c"} {
		handlers = append(handlers, Handler{Channel: Channel{Name: fmt.Sprint(i, part)}})
	}
	return handlers
}

// subscribed returns the next so many channels to which clients subscribe.
func subscribed(t *testing.T, commands *bufio.Scanner, channels int) (names []string) {
	t.Helper()
	for len(names) < channels {
		require.True(t, commands.Scan(), "%v", commands.Err())
		if _, list, subscribes := strings.Cut(strings.ToLower(commands.Text()), `"subscribe" `); subscribes {
			names = append(names, strings.Fields(strings.ReplaceAll(list, `"`, ""))...)
		}
	}
	return names
}

// requireInOrder requires that the channels of each waiter are in its order.
func requireInOrder(t *testing.T, names []string) {
	t.Helper()
	last := make(map[string]string) // of each waiter
	for _, name := range names {
		of, part := name[:len(name)-1], name[len(name)-1:]
		require.Less(t, last[of], part, "%v", names)
		last[of] = part
	}
}

// A server drops the channels of a slot that moves, and redirects a request to leave one that it gets
// after that. The connection keeps its other channels.
func TestRedirectedUnsubscriptionEndsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, served := scripted(func(request string) string {
			switch request {
			case "subscribe a", "subscribe b":
				return confirmation(request, 1)
			case "unsubscribe a": // the second one is for a slot that has come back meanwhile
				return confirmation(request, 1) + confirmation(request, 1) + "-MOVED 15495 127.0.0.1:2\r\n"
			case "unsubscribe b":
				return "-MOVED 15495 127.0.0.1:2\r\n"
			}
			return ""
		})
		s := New(func(context.Context, Channel) (Node, error) { return Node{Client: client}, nil }, func(error) {})
		var woken atomic.Int32
		a, err := s.Subscribe(t.Context(), []Handler{{Channel: Channel{Name: "a"}}}, func(driver.Notice) {})
		require.NoError(t, err)
		b, err := s.Subscribe(t.Context(), []Handler{{Channel: Channel{Name: "b"}}}, func(driver.Notice) { woken.Add(1) })
		require.NoError(t, err)
		a.Close()
		time.Sleep(time.Minute)
		assert.Zero(t, woken.Load(), "another connection would wake it")
		b.Close()
		time.Sleep(time.Minute)
		s.mu.Lock()
		assert.Empty(t, s.conns, "it has no channel any more")
		s.mu.Unlock()
		s.Close()
		require.NoError(t, client.Close())
		served.Wait()
	})
}

// A waiter gives up while the slot moves, so both of its requests are redirected. A later redirect, of
// another channel's subscription, is noticed all the same.
func TestRedirectAfterARedirectedUnsubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const moved = "-MOVED 15495 127.0.0.1:2\r\n"
		requests := 0 // for b
		client, served := scripted(func(request string) string {
			switch request {
			case "subscribe b":
				if requests++; requests == 2 {
					return moved
				}
				return confirmation(request, 1)
			case "unsubscribe a": // later b's slot moves, too
				return moved + moved + confirmation("unsubscribe b", 0)
			}
			return ""
		})
		s := New(func(context.Context, Channel) (Node, error) { return Node{Client: client}, nil }, func(error) {})
		var woken atomic.Int32
		b, err := s.Subscribe(t.Context(), []Handler{{Channel: Channel{Name: "b"}}}, func(driver.Notice) { woken.Add(1) })
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = s.Subscribe(ctx, []Handler{{Channel: Channel{Name: "a"}}}, func(driver.Notice) {})
		require.Error(t, err)
		time.Sleep(time.Minute)
		assert.Equal(t, int32(1), woken.Load(), "a message may have been missed")
		b.Close()
		s.Close()
		require.NoError(t, client.Close())
		served.Wait()
	})
}

// confirmation is the reply to a request for one channel.
func confirmation(request string, channels int) string {
	kind, channel, _ := strings.Cut(request, " ")
	return fmt.Sprintf("*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:%d\r\n", len(kind), kind, len(channel), channel, channels)
}

// scripted returns a client of a server that answers by reply to pings and the requests of
// subscriptions, and the work of that server.
func scripted(reply func(request string) string) (*redis.Client, *sync.WaitGroup) {
	serve := func(c net.Conn) {
		command := ""
		for lines := bufio.NewScanner(c); lines.Scan(); {
			answer := ""
			switch line := strings.ToLower(lines.Text()); {
			case line == "hello":
				answer = "-ERR unknown command\r\n"
			case line == "ping":
				answer = cmp.Or(reply(line), "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
			case strings.HasSuffix(line, "subscribe"):
				command = line + " "
			case command != "" && line[0] != '$':
				answer, command = reply(command+line), ""
			}
			if answer != "" {
				_, _ = io.WriteString(c, answer)
			}
		}
	}
	serving := new(sync.WaitGroup)
	return redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			serving.Go(func() { serve(theirs) })
			return ours, nil
		},
	}), serving
}

// A connection is replaced if its server has a subscription that no waiter has: scripts would count it.
func TestUnwantedSubscriptionEndsTheConnection(t *testing.T) {
	for name, unwanted := range map[string]map[string]string{ // replies by request
		"confirmed without a request": {"subscribe b": confirmation("subscribe b", 2) + confirmation("subscribe x", 3)},
		"not left":                    {"unsubscribe b": "-NOPERM no permission\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, served := scripted(func(request string) string {
					if request == "ping" {
						return ""
					}
					return cmp.Or(unwanted[request], confirmation(request, 1))
				})
				s := New(func(context.Context, Channel) (Node, error) { return Node{Client: client}, nil }, func(error) {})
				var woken atomic.Int32
				_, err := s.Subscribe(t.Context(), []Handler{{Channel: Channel{Name: "a"}}}, func(driver.Notice) { woken.Add(1) })
				require.NoError(t, err)
				b, err := s.Subscribe(t.Context(), []Handler{{Channel: Channel{Name: "b"}}}, func(driver.Notice) {})
				require.NoError(t, err)
				b.Close()
				time.Sleep(checkEvery / 2)
				assert.Equal(t, int32(1), woken.Load(), "by the connection that replaces it")
				s.Close()
				require.NoError(t, client.Close())
				served.Wait()
			})
		})
	}
}

// A connection breaks while a subscription waits to be sent on it: another connection takes it. It also
// breaks while the server confirms one: that has failed.
func TestConnectionBreaksDuringASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, served := scripted(func(request string) string {
			if request == "ping" || request == "subscribe c" {
				return ""
			}
			return confirmation(request, 1)
		})
		s := New(func(context.Context, Channel) (Node, error) { return Node{Client: client}, nil }, func(error) {})
		conn := func() *conn {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.conns[""]
		}
		subscribe := func(name string) <-chan error {
			failed := make(chan error, 1)
			go func() {
				_, err := s.Subscribe(t.Context(), []Handler{{Channel: Channel{Name: name}}}, func(driver.Notice) {})
				failed <- err
			}()
			synctest.Wait()
			return failed
		}
		require.NoError(t, <-subscribe("a"))
		cn := conn()
		cn.order <- struct{}{} // something is being sent
		sent := subscribe("b")
		cn.breakDown(errUnresponsive)
		cn.sent()
		require.NoError(t, <-sent)

		cn = conn()
		sent = subscribe("c")
		cn.breakDown(errUnresponsive)
		assert.True(t, cn.confirm(&redis.Subscription{Kind: "subscribe", Channel: "c"}))
		require.ErrorIs(t, <-sent, errUnresponsive)
		s.Close()
		require.NoError(t, client.Close())
		served.Wait()
	})
}

// While the server goes on to refuse a subscription that it had, as a cluster without a master for
// the slot does, it is requested a few times a second at most.
func TestRefusedByTheClusterIsRequestedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		client, served := scripted(func(request string) string {
			if request != "subscribe a" {
				return ""
			}
			if requests.Add(1) == 1 {
				return confirmation(request, 1) + confirmation("unsubscribe a", 0)
			}
			return "-CLUSTERDOWN Hash slot not served\r\n"
		})
		s := New(func(context.Context, Channel) (Node, error) { return Node{Client: client}, nil }, func(error) {})
		sub, err := s.Subscribe(t.Context(), []Handler{{Channel: Channel{Name: "a"}}}, func(driver.Notice) {})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Greater(t, requests.Load(), int32(30))
		assert.Less(t, requests.Load(), int32(300))
		sub.Close()
		s.Close()
		require.NoError(t, client.Close())
		served.Wait()
	})
}

// A refusal answers a ping, too: while the server cannot save its data, or the user may not ping, it
// refuses all of them, and the connection is kept.
func TestRefusedPingEndsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pings, woken atomic.Int32
		client, served := scripted(func(request string) string {
			if request == "ping" {
				pings.Add(1)
				return "-MISCONF Redis is configured to save RDB snapshots\r\n"
			}
			return confirmation(request, 1)
		})
		s := New(func(context.Context, Channel) (Node, error) { return Node{Client: client}, nil }, func(err error) { assert.NoError(t, err) })
		for _, name := range []string{"a", "b"} { // the second one is confirmed after the refusals
			_, err := s.Subscribe(t.Context(), []Handler{{Channel: Channel{Name: name}}}, func(driver.Notice) { woken.Add(1) })
			require.NoError(t, err)
			if name == "a" {
				time.Sleep(time.Minute)
				assert.Greater(t, pings.Load(), int32(5))
			}
		}
		assert.Zero(t, woken.Load(), "a connection that is replaced wakes its waiters")
		s.Close()
		require.NoError(t, client.Close())
		served.Wait()
	})
}

// A channel whose request could not be sent in time, as while a connection is being made, fails all that
// have subscribed to it: no other request would follow for those with more time.
func TestUnsentSubscriptionFailsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, served := scripted(func(request string) string {
			if request == "ping" {
				return ""
			}
			return confirmation(request, 1)
		})
		s := New(func(context.Context, Channel) (Node, error) { return Node{Client: client}, nil }, func(error) {})
		_, err := s.Subscribe(t.Context(), []Handler{{Channel: Channel{Name: "a"}}}, func(driver.Notice) {})
		require.NoError(t, err)
		s.mu.Lock()
		cn := s.conns[""]
		s.mu.Unlock()
		cn.order <- struct{}{} // something is being sent
		begin := time.Now()
		var waiting sync.WaitGroup
		for _, within := range []time.Duration{2 * attachWithin, time.Hour} {
			waiting.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				_, err := s.Subscribe(ctx, []Handler{{Channel: Channel{Name: "b"}}}, func(driver.Notice) {})
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
			synctest.Wait() // the first one makes the request
		}
		waiting.Wait()
		assert.Equal(t, 2*attachWithin, time.Since(begin))
		cn.sent()
		s.Close()
		require.NoError(t, client.Close())
		served.Wait()
	})
}

// A subscription that was refused is requested again for the next waiter, though an earlier one still waits
// for another of its channels.
func TestRefusedSubscriptionIsRequestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mute, muteServed := scripted(func(string) string { return "" })
		requests := 0
		client, served := scripted(func(request string) string {
			if request != "subscribe b" {
				return ""
			}
			if requests++; requests == 1 {
				return "-NOPERM no permission\r\n"
			}
			return confirmation(request, 1)
		})
		s := New(func(_ context.Context, c Channel) (Node, error) {
			if c.Name == "a" {
				return Node{ID: "mute", Client: mute}, nil
			}
			return Node{Client: client}, nil
		}, func(error) {})
		ctx, giveUp := context.WithTimeout(t.Context(), time.Hour)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			_, err := s.Subscribe(ctx, []Handler{{Channel: Channel{Name: "a"}}, {Channel: Channel{Name: "b"}}}, func(driver.Notice) {})
			assert.Error(t, err)
		})
		synctest.Wait()
		_, err := s.Subscribe(t.Context(), []Handler{{Channel: Channel{Name: "b"}}}, func(driver.Notice) {})
		assert.NoError(t, err)
		giveUp()
		waiting.Wait()
		s.Close()
		require.NoError(t, mute.Close())
		require.NoError(t, client.Close())
		muteServed.Wait()
		served.Wait()
	})
}

// A node that cannot be reached may have sharded pub/sub, whatever the words of the error.
func TestUnknownAuthorityIsNoOldServer(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, x509.UnknownAuthorityError{}
	}})
	defer client.Close()
	_, err := HasShards(t.Context(), client)
	require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
}

// After a failover a former master passes on what the present one publishes, whose scripts count the
// subscribers: channels that have another node move there, and leave the others as they are.
func TestChannelsFollowTheirNode(t *testing.T) {
	t.Parallel()
	former, present := redistest.Start(t, redistest.Config{}).Client(t), redistest.Start(t, redistest.Config{}).Client(t)
	var over, unknown atomic.Bool
	s := New(func(_ context.Context, c Channel) (Node, error) {
		switch {
		case unknown.Load():
			return Node{}, io.ErrUnexpectedEOF
		case over.Load() && c.Name != "stays":
			return Node{ID: "present", Client: present}, nil
		}
		return Node{ID: "former", Client: former}, nil
	}, func(error) {})
	defer s.Close()
	notices := listening(t, s, "stays", "a", "b")
	unknown.Store(true)
	s.checkConns()
	unknown.Store(false)
	over.Store(true)
	s.checkConns()
	awaitSubscribers(t, present, map[string]int64{"a": 1, "b": 1, "stays": 0})
	awaitSubscribers(t, former, map[string]int64{"a": 0, "b": 0, "stays": 1})
	assert.Equal(t, "a or b", (<-notices).Owner, "a message may have been missed")
	assert.Equal(t, "a or b", (<-notices).Owner)
	s.checkConns()
	delivers(t, present, "b", notices)
	delivers(t, former, "stays", notices)
}

// Where the address of a client leads to another server, in another epoch, all channels move: the
// connection to the former one ends.
func TestConnectionOfAnEarlierEpoch(t *testing.T) {
	t.Parallel()
	former, present := redistest.Start(t, redistest.Config{}).Client(t), redistest.Start(t, redistest.Config{}).Client(t)
	var behind atomic.Pointer[redis.Client]
	behind.Store(former)
	options := *former.Options()
	options.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		o := behind.Load().Options()
		return d.DialContext(ctx, o.Network, o.Addr)
	}
	client := redis.NewClient(&options)
	defer client.Close()
	var epoch atomic.Pointer[string]
	epoch.Store(new("0"))
	var asked atomic.Int32
	s := New(func(context.Context, Channel) (Node, error) {
		asked.Add(1)
		return Node{ID: *epoch.Load(), Sole: true, Client: client}, nil
	}, func(error) {})
	defer s.Close()
	s.CheckEvery = time.Hour
	notices := listening(t, s, "a", "b")
	behind.Store(present)
	s.mu.Lock()
	cn := s.conns["0"]
	s.mu.Unlock()
	broken := func() bool {
		s.checkConns()
		s.mu.Lock()
		defer s.mu.Unlock()
		return cn.broken
	}
	asked.Store(0)
	assert.False(t, broken(), "it may be the same server")
	assert.EqualValues(t, 1, asked.Load(), "the node has all channels: there may be 100,000")
	epoch.Store(new("1"))
	assert.True(t, broken())
	awaitSubscribers(t, present, map[string]int64{"a": 1, "b": 1})
	awaitSubscribers(t, former, map[string]int64{"a": 0, "b": 0})
	assert.Equal(t, "a or b", (<-notices).Owner)
	assert.Equal(t, "a or b", (<-notices).Owner)
	s.checkConns()
	delivers(t, present, "a", notices)
}

// listening subscribes to channels, each by itself, for as long as the test. A notice without a
// message has the owner "a or b", any other one its message.
func listening(t *testing.T, s *Subscriber, names ...string) <-chan driver.Notice {
	t.Helper()
	notices := make(chan driver.Notice, 100)
	for _, name := range names {
		sub, err := s.Subscribe(t.Context(), []Handler{{Channel{Name: name}, func(message string) (driver.Notice, bool) {
			return driver.Notice{Owner: message}, true
		}}}, func(n driver.Notice) {
			n.Owner = cmp.Or(n.Owner, "a or b")
			notices <- n
		})
		require.NoError(t, err)
		t.Cleanup(sub.Close)
	}
	return notices
}

// delivers publishes a channel's name there until it is received: the channel moves while the server
// does not answer, as on a busy machine.
func delivers(t *testing.T, server *redis.Client, name string, notices <-chan driver.Notice) {
	t.Helper()
	require.Eventually(t, func() bool {
		server.Publish(t.Context(), name, name)
		for {
			select {
			case n := <-notices:
				if n.Owner == name {
					return true
				}
			default:
				return false
			}
		}
	}, time.Minute, time.Millisecond, name)
}

// awaitSubscribers waits until a server has so many subscribers of channels.
func awaitSubscribers(t *testing.T, server *redis.Client, wanted map[string]int64) {
	t.Helper()
	names := slices.Collect(maps.Keys(wanted))
	require.Eventually(t, func() bool {
		return maps.Equal(wanted, server.PubSubNumSub(t.Context(), names...).Val())
	}, time.Minute, time.Millisecond, "%v", wanted)
}
