package etcdstore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// layout is what the servers of a cluster are configured by.
type layout struct {
	members  int
	election time.Duration // for which a leader may be silent; the least TTL is one and a half of it
}

var (
	// single has one member, which leads on the slowest machine.
	single = layout{1, 660 * time.Millisecond}
	// steady keeps its leader while the machine is held up for less than 10 s, and has one after some
	// seconds.
	steady = layout{3, 10 * time.Second}
	// swift soon replaces a leader that does not answer, which one that is held up does not either.
	swift = layout{3, 660 * time.Millisecond}
)

// limit is how long a condition is waited for.
const limit = time.Minute

// cluster is a cluster of etcd servers, on loopback.
type cluster struct {
	layout  layout
	folder  string
	members []*member
}

// member is one server. It is killed with the process of the test at the latest.
type member struct {
	*cluster
	name         string
	client, peer string // addresses
	advertised   string // the address of peer that the other members are given
	joins        bool   // an existing cluster
	command      *exec.Cmd
	exited       chan struct{}
	output       bytes.Buffer
	known        uint64 // its id; 0: unknown
}

// server returns the path of an etcd server, which make test finds or installs.
func server(t testing.TB) string {
	path := os.Getenv("ETCD_SERVER")
	if path == "" {
		path, _ = exec.LookPath("etcd")
	}
	if path == "" {
		out, err := exec.Command("../../.ci/etcd").Output()
		require.NoError(t, err, "no etcd server: set ETCD_SERVER")
		path = strings.TrimSpace(string(out))
	}
	return path
}

// through returns the address that other members are given for a member's, such as a proxy's.
type through func(t testing.TB, member int, address string) string

// startCluster starts a cluster that ends with t. Its data are in memory, where there is room. Another
// program may take a port before its server does: others are drawn then.
func startCluster(t testing.TB, layout layout, through through) *cluster {
	for attempt := 1; ; attempt++ {
		c := newCluster(t, layout, through)
		for _, m := range c.members {
			m.start(t)
		}
		err := c.answers(t)
		if err == nil {
			return c
		}
		if attempt == 5 || !strings.Contains(err.Error(), "address already in use") {
			t.Fatal(err)
		}
		c.kill()
	}
}

// newCluster returns a cluster whose members are not started yet.
func newCluster(t testing.TB, layout layout, through through) *cluster {
	folder, err := os.MkdirTemp(memory(), "etcdstore-test-") //nolint:usetesting // in memory, and some clusters are for all tests
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	c := &cluster{layout: layout, folder: folder}
	for i := range layout.members {
		m := &member{cluster: c, name: fmt.Sprintf("m%d", i), client: redistest.FreeAddress(t), peer: redistest.FreeAddress(t)}
		if m.advertised = m.peer; through != nil {
			m.advertised = through(t, i, m.peer)
		}
		c.members = append(c.members, m)
	}
	t.Cleanup(c.kill)
	return c
}

// kill ends all members at once.
func (c *cluster) kill() {
	for _, m := range c.members {
		m.kill()
	}
}

// memory is a folder in memory, where there is one.
func memory() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// start starts a member, again with its data.
func (m *member) start(t testing.TB) {
	var initial []string
	for _, other := range m.members {
		initial = append(initial, other.name+"=http://"+other.advertised)
	}
	state := "new"
	if m.joins {
		state = "existing"
	}
	m.command = exec.Command(server(t),
		"--name", m.name, "--data-dir", filepath.Join(m.folder, m.name),
		"--listen-client-urls", "http://"+m.client, "--advertise-client-urls", "http://"+m.client,
		"--listen-peer-urls", "http://"+m.peer, "--initial-advertise-peer-urls", "http://"+m.advertised,
		"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-token", m.folder, "--initial-cluster-state", state,
		"--heartbeat-interval", "60", "--election-timeout", strconv.FormatInt(m.layout.election.Milliseconds(), 10),
		"--logger", "zap", "--log-level", "error", "--log-outputs", "stderr",
	)
	m.command.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH)
	m.output.Reset()
	m.command.Stdout, m.command.Stderr = &m.output, &m.output
	m.exited = make(chan struct{})
	dieWithParent(m.command)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the kernel kills the server with this thread
		err := m.command.Start()
		started <- err
		if err == nil {
			_ = m.command.Wait()
		}
		close(m.exited)
	}()
	require.NoError(t, <-started)
}

// kill ends a member at once, as kill -9 does.
func (m *member) kill() {
	if m.command != nil {
		_ = m.command.Process.Kill()
		<-m.exited
		m.command = nil
	}
}

// await waits until every member answers, with a leader.
func (c *cluster) await(t testing.TB) { require.NoError(t, c.answers(t)) }

func (c *cluster) answers(t testing.TB) error {
	for _, m := range c.members {
		if m.command != nil {
			if err := m.answers(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// answers waits until a member answers, with a leader.
func (m *member) answers(t testing.TB) error {
	client := m.dial(t)
	begin := time.Now()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := client.Get(ctx, "any")
		cancel()
		select {
		case <-m.exited: // perhaps another one has answered, which has its port
			return fmt.Errorf("member %s has ended: %s", m.name, m.output.String())
		default:
		}
		if err == nil {
			return nil
		}
		if time.Since(begin) > limit {
			return fmt.Errorf("member %s does not answer: %w", m.name, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// dial returns a client of one member.
func (m *member) dial(t testing.TB) *clientv3.Client { return dial(t, []string{m.client}, limit) }

// dial returns a client that ends with t. It closes connections without an answer for so long.
func dial(t testing.TB, addresses []string, silent time.Duration, options ...grpc.DialOption) *clientv3.Client {
	var endpoints []string
	for _, address := range addresses {
		endpoints = append(endpoints, "http://"+address)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: silent, DialOptions: options, Logger: zap.NewNop(),
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: silent,
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// dial returns a client of all members, which ends with t.
func (c *cluster) dial(t testing.TB, options ...grpc.DialOption) *clientv3.Client {
	var addresses []string
	for _, m := range c.members {
		addresses = append(addresses, m.client)
	}
	return dial(t, addresses, limit, options...)
}

// shared is the cluster of the package's tests, which use prefixes of their own. It has one member.
var shared struct {
	once sync.Once
	*cluster
	cleanups
}

// common returns the shared cluster.
func common(t testing.TB) *cluster {
	shared.once.Do(func() { shared.cluster = startCluster(&owner{TB: t, cleanups: &shared.cleanups}, single, nil) })
	if shared.cluster == nil {
		t.Fatal("the cluster was not started")
	}
	return shared.cluster
}

// owner is a TB whose cleanups run after all tests.
type owner struct {
	testing.TB
	*cleanups
}

type cleanups struct{ all []func() }

func (c *cleanups) Cleanup(f func()) { c.all = append(c.all, f) }

func (o *owner) Cleanup(f func()) { o.cleanups.Cleanup(f) }

func (c *cleanups) run() {
	for i := len(c.all) - 1; i >= 0; i-- {
		c.all[i]()
	}
}

// save starts a member again with its data, and returns how to have it go back to these.
func (m *member) save(t testing.TB) (restore func()) {
	data, saved := filepath.Join(m.folder, m.name), filepath.Join(m.folder, m.name+".saved")
	again := func(from, to string) {
		m.kill()
		require.NoError(t, os.RemoveAll(to))
		require.NoError(t, os.CopyFS(to, os.DirFS(from)))
		m.start(t)
		require.NoError(t, m.answers(t))
	}
	again(data, saved)
	return func() { again(saved, data) }
}

// lose deletes the data of a member that was killed.
func (m *member) lose(t testing.TB) {
	require.NoError(t, os.RemoveAll(filepath.Join(m.folder, m.name)))
}
