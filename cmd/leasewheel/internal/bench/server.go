//go:build unix

package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// The values of --start.
const (
	startSingle  = "single"
	startCluster = "cluster"
)

// errNoStart reports that a server could not be started.
var errNoStart = errors.New("cannot start a server")

// stage runs the servers that were started for a measurement. It takes the place of a
// test, which the harness reports to and ends with.
type stage struct{ cleanups []func() }

var _ redistest.TB = (*stage)(nil)

// startServers starts a server, or a cluster, and returns its URL.
func startServers(what string) (url string, s *stage, err error) {
	s = new(stage)
	defer func() {
		if p := recover(); p != nil {
			failure, ok := p.(stageError)
			if !ok {
				panic(p)
			}
			s.close()
			url, s, err = "", nil, fmt.Errorf("%w: %s", errNoStart, string(failure))
		}
	}()
	if what == startCluster {
		url = redistest.StartCluster(s, redistest.ClusterConfig{}).URL()
		return strings.Replace(url, "redis://", "redis-cluster://", 1), s, nil
	}
	return redistest.Start(s, redistest.Config{}).URL(), s, nil
}

// stageError unwinds a start that failed.
type stageError string

func (s *stage) Helper()             {}
func (s *stage) Cleanup(f func())    { s.cleanups = append(s.cleanups, f) }
func (s *stage) Failed() bool        { return false }
func (s *stage) Logf(string, ...any) {}

func (s *stage) Errorf(string, ...any) {} // a server that ended by itself: its clients have reported it

func (s *stage) Fatalf(format string, args ...any) { panic(stageError(fmt.Sprintf(format, args...))) }
func (s *stage) Skipf(format string, args ...any)  { s.Fatalf(format, args...) }

func (s *stage) close() {
	if s == nil {
		return
	}
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

// validStart checks a --start flag.
func validStart(start string, flags connect.Flags) error {
	switch {
	case start == "":
		return nil
	case start != startSingle && start != startCluster:
		return fmt.Errorf("--start %q: accepted are %s and %s", start, startSingle, startCluster)
	case len(flags.URLs) > 0 || flags.File != "":
		return errors.New("--start and --store exclude each other")
	}
	return nil
}

// measuredServer is the measured server.
type measuredServer struct {
	*connect.Server
	flags connect.Flags // with the URL in use
	stage *stage        // nil if the server was running before
}

// openBenchServer connects to the server that flags or the environment name, or starts
// one.
func openBenchServer(ctx context.Context, start string, flags connect.Flags, c redisstore.Config) (*measuredServer, error) {
	s := &measuredServer{}
	if start != "" {
		url, stage, err := startServers(start)
		if err != nil {
			return nil, err
		}
		flags, s.stage = connect.Flags{URLs: []string{url}}, stage
	}
	url, err := flags.ResolveOne(os.Getenv(connect.URLVariable))
	if err == nil {
		flags.URLs, flags.File = []string{url}, ""
		s.Server, err = flags.Open("", c)
		s.flags = flags // with the password of a pipe
	}
	if err != nil {
		s.stage.close()
		return nil, &exit.Error{Code: exit.Usage, Err: err}
	}
	if err := s.Store.Ping(ctx); err != nil {
		err = connect.Unavailable(ctx, s.Server, err)
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *measuredServer) Close() error {
	err := s.Server.Close()
	s.stage.close()
	return err
}

// cluster returns the client of a cluster, or nil.
func (s *measuredServer) cluster() *redis.ClusterClient {
	c, _ := s.Client.(*redis.ClusterClient)
	return c
}

// serverUse is what all masters together have used since they started.
type serverUse struct {
	scripts time.Duration // running scripts
	calls   int64         // of scripts
	cpu     time.Duration
}

func (u serverUse) since(earlier serverUse) serverUse {
	return serverUse{u.scripts - earlier.scripts, u.calls - earlier.calls, u.cpu - earlier.cpu}
}

// use reads the masters' use.
func (s *measuredServer) use(ctx context.Context) (serverUse, error) {
	var mu sync.Mutex
	var use serverUse
	ask := func(ctx context.Context, c *redis.Client) error {
		info, err := c.InfoMap(ctx, "commandstats", "cpu").Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		use.add(info)
		return nil
	}
	var err error
	switch c := s.Client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, ask)
	case *redis.Client:
		err = ask(ctx, c)
	default:
		err = fmt.Errorf("no statistics from a client of type %T", c)
	}
	return use, err
}

// add adds the figures of one server's INFO.
func (u *serverUse) add(info map[string]map[string]string) {
	for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		for field := range strings.SplitSeq(info["Commandstats"][name], ",") {
			key, text, _ := strings.Cut(field, "=")
			n, _ := strconv.ParseInt(text, 10, 64)
			switch key {
			case "calls":
				u.calls += n
			case "usec":
				u.scripts += time.Duration(n) * time.Microsecond
			}
		}
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, _ := strconv.ParseFloat(info["CPU"][name], 64)
		u.cpu += time.Duration(seconds * float64(time.Second))
	}
}

// fleet is a number of leases at the server, by number.
type fleet struct {
	*measuredServer
	prefix, client string
	size           int
	ttl            time.Duration
}

// parallel is how many requests are in flight while leases are acquired.
const parallel = 64

func (s *measuredServer) fleet(size int, ttl time.Duration) *fleet {
	return &fleet{s, "leasewheel-bench:" + rand.Text()[:8], rand.Text(), size, ttl}
}

func (f *fleet) name(i int) string  { return f.prefix + ":" + strconv.Itoa(i) }
func (f *fleet) owner(i int) string { return f.client + ":" + strconv.Itoa(i) }

// take acquires every lease. granted is called for each, with the instant before its
// request, by many goroutines.
func (f *fleet) take(ctx context.Context, p *progress, granted func(name, owner string, asked time.Time) error) error {
	var next, taken atomic.Int64
	p.begin("taking leases", int64(f.size), taken.Load)
	group, ctx := errgroup.WithContext(ctx)
	for range parallel {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < f.size; i = int(next.Add(1)) - 1 {
				h := driver.Hold{Name: f.name(i), Owner: f.owner(i), Count: 1, TTL: f.ttl}
				asked := time.Now()
				answer, err := f.Store.Acquire(ctx, &h)
				if err != nil {
					return err
				}
				if answer.Verdict != driver.Granted {
					return fmt.Errorf("the name %q is in use", h.Name)
				}
				if err := granted(h.Name, h.Owner, asked); err != nil {
					return err
				}
				taken.Add(1)
			}
			return nil
		})
	}
	return group.Wait()
}

// cleanUpLimit bounds the cleanup; the rest expires with its TTL.
const cleanUpLimit = 2 * time.Minute

// cleanUp deletes every lease, even after ctx has ended. Only this run uses their names.
func (f *fleet) cleanUp(ctx context.Context, p *progress) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	var swept atomic.Int64
	p.begin("giving back", int64(f.size), swept.Load)
	const portion = 1000
	for from := 0; from < f.size; from += portion {
		_, err := f.measuredServer.Client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i := from; i < min(from+portion, f.size); i++ {
				pipe.Unlink(ctx, f.name(i))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("the leases of the measurement could not be deleted and end by themselves: %w", err)
		}
		swept.Add(portion)
	}
	return nil
}

// memory returns the size of the process's heap and stacks after a collection.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
