package connect

import (
	"context"
	"crypto/tls"
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
	// TLS names what is in a URL in the place of the flags of TLS. It is empty if the flags are used.
	TLS string
	// Open opens the locks of a URL, and sends no request yet. No error has the URL: it is a secret.
	Open func(rawURL string, a Access) (Opened, error)
}

// Access is what does not come from a URL.
type Access struct {
	TLS         *tls.Config                                                      // nil: the flags have none
	Credentials func(ctx context.Context) (username, password string, err error) // for each connection; nil: the URL has them
	Logger      *slog.Logger
}

// Opened are the locks of an engine's URL.
type Opened struct {
	Store   driver.Store
	Address string // of the server; no secret
	Close   func() error

	// Probe returns why the server does not answer, if the errors of Store do not contain that, and
	// advice if the cause is permanent. It sends no secret, and may be nil.
	Probe func(ctx context.Context) (advice string, reason error)
}

// engines are the rows that [Register] has added, by scheme.
var engines = map[string]Engine{}

// elsewhere are the commands of cmd/leasewheel/engines by the schemes of their engines.
var elsewhere = map[string]string{
	"postgres": "leasewheel-postgres", "postgresql": "leasewheel-postgres",
	"etcd": "leasewheel-etcd", "etcds": "leasewheel-etcd",
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
		return e, false, fmt.Errorf("%s:// needs %s, of the same release, or built from cmd/leasewheel/engines", scheme, command)
	}
	return e, false, nil
}

// openEngine returns the locks of an engine's URL. What belongs to Redis alone is refused.
func (s *Flags) openEngine(e Engine, rawURL string, c redisstore.Config) (*Server, error) {
	switch {
	case c.Prefix != "" || c.Format != redisstore.FormatRedisson || c.PubSub != redisstore.PubSubAuto:
		return nil, fmt.Errorf("a %s:// server is no Redis: --format, --prefix, --pubsub and their variables do not belong to it", e.Schemes[0])
	case e.TLS != "" && s.CA+s.Cert+s.Key+s.ServerName != "":
		return nil, fmt.Errorf("--store-ca, --store-cert, --store-key and --store-server-name: a %s:// URL has %s instead", e.Schemes[0], e.TLS)
	}
	config, err := s.clientConfig(rawURL)
	if err != nil {
		return nil, err
	}
	opened, err := e.Open(rawURL, Access{config.TLS, config.Credentials, s.Logger})
	if err != nil {
		return nil, err
	}
	return &Server{other: opened, Engine: e.Schemes[0], urlTLS: e.TLS, Address: opened.Address}, nil
}
