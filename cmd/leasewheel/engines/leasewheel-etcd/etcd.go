package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/etcdstore"
)

// etcd is the row of etcd: etcd://[user:password@]host[:port][,host[:port]…][/prefix], the members
// of one cluster; by TLS with etcds.
var etcd = connect.Engine{Schemes: []string{"etcd", "etcds"}, Open: openEtcd}

func openEtcd(rawURL string, a connect.Access) (connect.Opened, error) {
	config, prefix, err := parse(rawURL)
	if err != nil {
		return connect.Opened{}, err
	}
	if strings.HasPrefix(rawURL, "etcds:") {
		config.TLS = cmp.Or(a.TLS, &tls.Config{MinVersion: tls.VersionTLS12})
	}
	if a.Credentials != nil {
		user, password, err := a.Credentials(context.Background())
		if err != nil {
			return connect.Opened{}, err
		}
		config.Username, config.Password = cmp.Or(user, config.Username), password
		config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(authenticating(a.Credentials)))
	}
	if (config.Username == "") != (config.Password == "") {
		return connect.Opened{}, errors.New("an etcd:// server wants a user and a password, or neither")
	}
	client, err := clientv3.New(config)
	address := strings.Join(config.Endpoints, ", ")
	if err != nil { // only a user's password is checked by now
		_, reason := probe(context.Background(), config)
		return connect.Opened{}, exit.Errorf(exit.Unavailable, "server %s: %w", address, errors.Join(reason, err))
	}
	client.KV = bounded{client.KV}
	store, err := etcdstore.New(client, etcdstore.Config{Prefix: prefix})
	if err != nil {
		return connect.Opened{}, errors.Join(err, client.Close())
	}
	return connect.Opened{
		Store: store, Address: address,
		Close: func() error { return errors.Join(store.Close(), client.Close()) },
		Probe: func(ctx context.Context) (string, error) { return probe(ctx, config) },
	}, nil
}

// authenticating has each request for a user's token but the first, for which the client was given
// them, ask for the credentials again: the client keeps its own, and a changed password ends all tokens.
func authenticating(credentials func(context.Context) (username, password string, err error)) grpc.UnaryClientInterceptor {
	var given atomic.Bool
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if r, ok := request.(*etcdserverpb.AuthenticateRequest); ok && given.Swap(true) {
			user, password, err := credentials(ctx)
			if err != nil {
				return err
			}
			request = &etcdserverpb.AuthenticateRequest{Name: cmp.Or(user, r.Name), Password: password}
		}
		return next(ctx, method, request, reply, conn, options...)
	}
}

// preface begins a connection by HTTP/2. A server answers it.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// probe returns why no member answers: etcd's client reports only that its time is over.
func probe(ctx context.Context, config clientv3.Config) (advice string, reason error) {
	ctx, cancel := context.WithTimeout(ctx, connect.ProbeTimeout)
	defer cancel()
	if config.TLS != nil {
		config.TLS = config.TLS.Clone()
		config.TLS.NextProtos = []string{"h2"}
	}
	for _, member := range config.Endpoints {
		_, err := connect.Greet(ctx, member, config.TLS, preface)
		if err == nil {
			return "", nil
		}
		reason = errors.Join(reason, err)
		if config.TLS == nil {
			if connect.SpeaksTLS(ctx, member) {
				advice = "speaks TLS on this port: use etcds:// instead of etcd://"
			}
		} else if first, err := connect.Greet(ctx, member, nil, preface); err == nil && first == 0 { // a frame of settings
			advice = "speaks no TLS on this port: use etcd:// instead of etcds://"
		}
	}
	return advice, reason
}

// bounded bounds each read. Those of a list have no other bound.
type bounded struct{ clientv3.KV }

func (b bounded) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, connect.RequestTimeout)
	defer cancel()
	return b.KV.Get(ctx, key, options...)
}

// parse returns what a URL names. Package url accepts no more than one host. No error has a part of
// the URL, which may have a password.
func parse(rawURL string) (config clientv3.Config, prefix string, err error) {
	errInvalid := errors.New("the etcd:// URL is invalid: accepted is etcd://[user[:password]@]host[:port][,host[:port]…][/prefix]")
	config = clientv3.Config{
		DialTimeout:          connect.RequestTimeout, // of the request for a user's token
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 2 * time.Second,
		Logger:               zap.NewNop(),
	}
	_, rest, _ := strings.Cut(rawURL, "://")
	hosts, prefix, _ := strings.Cut(rest, "/")
	if strings.Contains(prefix, "@") { // hosts may have a part of a password with a slash that is not escaped
		return config, "", errInvalid
	}
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		name, password, _ := strings.Cut(hosts[:at], ":")
		var errName, errPassword error
		config.Username, errName = url.PathUnescape(name)
		config.Password, errPassword = url.PathUnescape(password)
		if errName != nil || errPassword != nil {
			return config, "", errInvalid
		}
		hosts = hosts[at+1:]
	}
	for host := range strings.SplitSeq(hosts, ",") {
		u, err := url.Parse("http://" + host)
		if err != nil || u.Hostname() == "" || !isPort(u.Port()) || u.Host != host || strings.ContainsAny(prefix, "?#") {
			return config, "", errInvalid
		}
		config.Endpoints = append(config.Endpoints, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "2379")))
	}
	return config, prefix, nil
}

// isPort reports whether text is the number of a port, or no text, for the default.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}
