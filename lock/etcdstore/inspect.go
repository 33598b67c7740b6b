package etcdstore

import (
	"context"
	"iter"
	"maps"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// pageOf is how many names a request lists.
const pageOf = 500

// Announce stores the record of a client, see [driver.Store].
func (s *Store) Announce(ctx context.Context, c driver.Client, ttl time.Duration) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.begin(ctx); err != nil {
		return err
	}
	granted, err := s.grant(ctx, ttl)
	if err != nil {
		return failed(err)
	}
	value := machine.Encode(func(m *machine.Coder) { m.Client(&c) })
	if _, err := s.put(ctx, s.keys.client(c.ID), string(value), granted.ID); err != nil {
		return failed(err)
	}
	return nil
}

// Inspect returns the state of a lock, see [driver.Inspector].
func (s *Store) Inspect(ctx context.Context, name string, _ driver.Kind) (info driver.Info, err error) {
	w, err := s.view(ctx, name, func(w *work) []machine.Message {
		w.refused()
		info = w.inspect()
		return nil
	})
	if err != nil {
		return driver.Info{}, err
	}
	return info, s.describe(ctx, &info, w)
}

// ForceRelease frees a lock regardless of its holder, see [driver.Inspector].
func (s *Store) ForceRelease(ctx context.Context, name string) (info driver.Info, err error) {
	claims := make(map[string]claim)
	w, err := s.step(ctx, name, hold{}, func(w *work) (sent []machine.Message) {
		w.refused()
		clear(claims)
		maps.Copy(claims, w.of)
		info, sent = w.state.ForceRelease(w.now)
		return sent
	})
	if err != nil {
		return driver.Info{}, err
	}
	w.of = claims
	s.describe(ctx, &info, w) //nolint:errcheck // the lock is free: an error would deny it
	return info, nil
}

// describe adds what the machine does not know.
func (s *Store) describe(ctx context.Context, info *driver.Info, w *work) (err error) {
	clients := make(map[string]driver.Client)
	machine.Identify(info, w.name, func(id string) (driver.Client, bool) {
		c, known := clients[id]
		if !known && err == nil {
			c, err = s.announced(ctx, id)
			clients[id] = c
		}
		return c, !c.Since.IsZero()
	})
	info.Token, info.TTL = w.lastToken(), 0
	left := make(map[clientv3.LeaseID]time.Duration)
	for i := range info.Holders {
		h := &info.Holders[i]
		claim := w.of[h.Owner]
		if _, known := left[claim.lease]; !known {
			answer, err := somewhere(ctx, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
				return s.client.TimeToLive(ctx, claim.lease)
			})
			if err != nil {
				return unsent(err)
			}
			left[claim.lease] = max(time.Duration(answer.TTL)*time.Second, time.Millisecond)
		}
		h.TTL = left[claim.lease]
		if info.TTL = max(info.TTL, h.TTL); !h.Client.Since.IsZero() { // the client was announced
			h.Since = time.UnixMicro(claim.since)
		}
	}
	return err
}

// announced returns the record of a client, or nothing.
func (s *Store) announced(ctx context.Context, id string) (c driver.Client, err error) {
	response, err := s.get(ctx, s.keys.client(id))
	if err != nil {
		return c, unsent(err)
	}
	if len(response.Kvs) == 0 || !machine.Decode(response.Kvs[0].Value, func(m *machine.Coder) { m.Client(&c) }) {
		return driver.Client{}, nil
	}
	return c, nil
}

// List yields the held locks, see [driver.Inspector].
func (s *Store) List(ctx context.Context, prefix string, wanted func(string) bool) iter.Seq2[driver.Info, error] {
	return machine.Held(ctx, prefix, wanted, s.names, s.Inspect)
}

// names returns the names with a prefix that have a record.
func (s *Store) names(ctx context.Context, prefix string) (names []string, err error) {
	begin := s.keys.locks() + escape(prefix)
	for key, end := begin, clientv3.GetPrefixRangeEnd(begin); ; {
		response, err := s.get(ctx, key, clientv3.WithRange(end), clientv3.WithLimit(pageOf), clientv3.WithKeysOnly())
		if err != nil {
			return nil, unsent(err)
		}
		for _, kv := range response.Kvs {
			if name, ok := s.keys.nameOf(kv.Key); ok {
				names = append(names, name)
			}
			key = string(kv.Key) + "\x00"
		}
		if !response.More {
			return names, nil
		}
	}
}
