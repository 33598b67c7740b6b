package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrClient says that a client's options break a lock's promises. The error that
// carries it names the option and its right value.
var ErrClient = errors.New("redisstore: unfit client")

// inspect refuses a client that cannot keep a lock's promises.
func inspect(client redis.UniversalClient) error {
	switch c := client.(type) {
	case *redis.Client:
		if c == nil {
			break
		}
		return bounded(c.Options().ContextTimeoutEnabled)
	case *redis.ClusterClient:
		if c == nil {
			break
		}
		if c.Options().MaxRedirects < 1 {
			return fmt.Errorf("%w: it follows no redirects, so a lock whose slot moves is out of reach: leave ClusterOptions.MaxRedirects at 0 (which means 3) or set it to 1 or more", ErrClient)
		}
		return bounded(c.Options().ContextTimeoutEnabled)
	case *redis.Ring:
		return fmt.Errorf("%w: a redis.Ring sends a key to another server when one is down, and then two clients hold one lock: use a single server, sentinel, a cluster or a quorum of stores", ErrClient)
	}
	return fmt.Errorf("%w: %T cannot be inspected: pass a *redis.Client or a *redis.ClusterClient, or use Open", ErrClient, client)
}

func bounded(contextTimeoutEnabled bool) error {
	if contextTimeoutEnabled {
		return nil
	}
	return fmt.Errorf("%w: it ignores deadlines, so a mute server would hold a request for seconds after its lease ran out: set ContextTimeoutEnabled: true in its options, or use Open", ErrClient)
}

// Open returns a store on a client that it makes from a URL and closes with the
// store. It sends nothing; see [Store.Ping].
//
//	redis://user:password@host:6379/0            one server
//	rediss://…                                   one server, by TLS
//	unix:///run/redis.sock?db=0                  one server, by its socket
//	redis-sentinel://host:26379/0?master_name=m  the master that sentinels name (rediss-sentinel: by TLS)
//	redis-cluster://host:7000                    a cluster (rediss-cluster: by TLS)
//
// Further nodes of a sentinel or cluster are given as &addr=host:port. Other
// options are go-redis's, by their snake-case names (dial_timeout=2s, pool_size=20
// and so on).
// No error of Open shows a password.
func Open(rawURL string, c Config) (*Store, error) {
	client, err := Dial(rawURL, nil)
	if err != nil {
		return nil, err
	}
	s, err := New(client, c)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s.owned = true
	return s, nil
}

// ErrURL says that [Open] was given a URL which it cannot use.
var ErrURL = errors.New("redisstore: malformed URL")

// Dial returns the client that [Open] makes for a URL, for those who need it
// themselves; it is theirs to close. It connects on first use. For a URL that asks
// for TLS, config replaces the default, which trusts the system's roots; its
// ServerName may be empty.
//
// The client heeds deadlines. It leaves out what go-redis otherwise says and asks
// on each new connection: over a slow network every round trip of a handshake is
// taken from the time in which a lease must be renewed.
func Dial(rawURL string, config *tls.Config) (redis.UniversalClient, error) {
	scheme, rest, isURL := strings.Cut(rawURL, "://")
	base, mode, _ := strings.Cut(scheme, "-")
	plain := base + "://" + rest
	switch {
	case !isURL, base != "redis" && base != "rediss" && scheme != "unix":
	case mode == "":
		o, err := redis.ParseURL(plain)
		if err != nil {
			return nil, badURL(reason(plain, err))
		}
		o.ContextTimeoutEnabled, o.DisableIdentity = true, true
		o.MaintNotificationsConfig = noMaintenance()
		o.TLSConfig = secure(o.TLSConfig, config)
		return redis.NewClient(o), nil
	case mode == "sentinel":
		o, err := redis.ParseFailoverURL(plain)
		if err != nil {
			return nil, badURL(reason(plain, err))
		}
		if o.MasterName == "" {
			return nil, badURL("a sentinel's URL needs ?master_name=")
		}
		o.ContextTimeoutEnabled, o.DisableIdentity = true, true
		o.TLSConfig = secure(o.TLSConfig, config)
		return redis.NewFailoverClient(o), nil
	case mode == "cluster":
		o, err := redis.ParseClusterURL(plain)
		if err != nil {
			return nil, badURL(reason(plain, err))
		}
		o.ContextTimeoutEnabled, o.DisableIdentity = true, true
		o.MaintNotificationsConfig = noMaintenance()
		o.TLSConfig = secure(o.TLSConfig, config)
		return redis.NewClusterClient(o), nil
	}
	return nil, badURL("its scheme is none of the accepted ones")
}

// noMaintenance leaves out one round trip of the handshake.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// secure returns the TLS configuration to use in place of the one made from a
// URL, which is nil for a connection without TLS.
func secure(fromURL, config *tls.Config) *tls.Config {
	if fromURL == nil || config == nil {
		return fromURL
	}
	config = config.Clone()
	config.ServerName = cmp.Or(config.ServerName, fromURL.ServerName)
	config.InsecureSkipVerify = config.InsecureSkipVerify || fromURL.InsecureSkipVerify
	return config
}

func badURL(what string) error {
	return fmt.Errorf("%w: %s; accepted are redis://[user:password@]host:port[/db], rediss://…, unix:///path, redis-sentinel://host:port?master_name=name and redis-cluster://host:port", ErrURL, what)
}

// reason returns what a URL parser complains of, unless that may quote a secret:
// a password with an unescaped "/", "?" or "#" spills over into what follows the
// host, and brings the "@" along.
func reason(rawURL string, err error) string {
	u, parsing := url.Parse(rawURL)
	if parsing != nil || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") {
		return "it cannot be parsed (special characters in a password must be percent-encoded)"
	}
	return strings.TrimPrefix(err.Error(), "redis: ")
}

// LogTo routes the messages of go-redis itself, which by default go to standard
// error, to logger. It holds for the whole process. Nil silences them.
func LogTo(logger *slog.Logger) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	redis.SetLogger(relay{logger})
}

// relay is a go-redis logger that writes to slog.
type relay struct{ to *slog.Logger }

func (r relay) Printf(ctx context.Context, format string, v ...any) {
	r.to.WarnContext(ctx, "redis: "+fmt.Sprintf(format, v...))
}
