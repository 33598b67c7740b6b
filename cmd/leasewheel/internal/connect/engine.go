package connect

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Engine is a row of the table of engines that are no Redis, by the scheme of their URLs.
type Engine struct {
	// Schemes begin the engine's URLs.
	Schemes []string
	// Open opens the locks of a URL, and sends no request yet. No error has the URL: it is a secret.
	Open func(rawURL string, logger *slog.Logger) (Opened, error)
}

// Opened are the locks of an engine's URL.
type Opened struct {
	Store   driver.Store
	Address string // of the server; no secret
	Close   func() error
}

// engines are the rows that [Register] has added, by scheme.
var engines = map[string]Engine{}

// elsewhere are the builds of the commands of cmd/leasewheel/engines, by the schemes of their engines.
var elsewhere = map[string]string{
	"postgres": "./leasewheel-postgres", "postgresql": "./leasewheel-postgres",
	"etcd": "-tags grpcnotrace ./leasewheel-etcd",
}

// Register adds an engine to the table. A main function calls it before it executes the command.
func Register(e Engine) {
	for _, scheme := range e.Schemes {
		engines[scheme] = e
	}
}

// engineOf returns the engine of a URL; ok is false for one of Redis.
func engineOf(rawURL string) (e Engine, ok bool, err error) {
	scheme, _, _ := strings.Cut(rawURL, "://")
	if e, ok = engines[scheme]; ok {
		return e, true, nil
	}
	if command, ok := elsewhere[scheme]; ok {
		return e, false, fmt.Errorf("%s:// is not in this command, but in one of a checkout's cmd/leasewheel/engines: go build %s", scheme, command)
	}
	return e, false, nil
}

// openEngine returns the locks of an engine's URL. What belongs to Redis is refused.
func (s *Flags) openEngine(e Engine, rawURL string, c redisstore.Config) (*Server, error) {
	if c.Prefix != "" || c.Format != redisstore.FormatRedisson || c.PubSub != redisstore.PubSubAuto || s.ConnectionFlags != (ConnectionFlags{}) {
		return nil, fmt.Errorf("a %s:// server is no Redis: --format, --prefix, --pubsub, their variables, and the flags --redis-… do not belong to it", e.Schemes[0])
	}
	opened, err := e.Open(rawURL, c.Logger)
	if err != nil {
		return nil, err
	}
	return &Server{other: opened.Store, end: opened.Close, Engine: e.Schemes[0], Address: opened.Address}, nil
}
