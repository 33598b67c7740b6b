package certstorage_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/adapters/certstorage"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// authority signs certificates, and counts them by name.
type authority struct {
	key *ecdsa.PrivateKey

	fail func() error // if not nil: called first

	mu     sync.Mutex
	issued map[string]int
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return &authority{key: key, issued: map[string]int{}}
}

func (*authority) IssuerKey() string { return "test" }

func (a *authority) Issue(_ context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if a.fail != nil {
		if err := a.fail(); err != nil {
			return nil, err
		}
	}
	name := request.DNSNames[0]
	a.mu.Lock()
	defer a.mu.Unlock()
	a.issued[name]++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(a.issued))), DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// newConfig returns certmagic, as one server has it.
func newConfig(t *testing.T, s certmagic.Storage, issuer certmagic.Issuer) (config *certmagic.Config) {
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	return certmagic.New(cache, certmagic.Config{Storage: s, Issuers: []certmagic.Issuer{issuer}, Logger: zap.NewNop()})
}

// Two servers that share certificates, and locks on a real redis-server, obtain each
// certificate once, though eight goroutines of each want it at the same time.
func TestTwoServersObtainOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	issuer := newAuthority(t)
	folder := t.TempDir()
	const names, askers = 25, 8
	var asking sync.WaitGroup
	for range 2 {
		store, err := redisstore.New(server.Client(t), redisstore.Config{})
		require.NoError(t, err)
		defer store.Close()
		locker, err := lock.New(store, lock.Config{TTL: 10 * time.Minute, RequestTimeout: time.Minute}) // no slow machine decides
		require.NoError(t, err)
		defer locker.Close()
		config := newConfig(t, certstorage.New(&certmagic.FileStorage{Path: folder}, locker, lock.Options{}), issuer)
		for i := range names {
			for range askers {
				asking.Go(func() { assert.NoError(t, config.ObtainCertSync(t.Context(), fmt.Sprintf("shop%d.example", i))) })
			}
		}
	}
	asking.Wait()
	require.Len(t, issuer.issued, names)
	for name, n := range issuer.issued {
		require.Equal(t, 1, n, "broken promise: certificates of %s", name)
	}
	t.Logf("2 servers, %d requests: %d certificates, once each", 2*names*askers, len(issuer.issued))
}

// locker is what certmagic knows of a storage with locks.
type locker interface {
	certmagic.Storage
	certmagic.TryLocker
	certmagic.LockLeaseRenewer
}

func open(t *testing.T, memory *locktest.Memory) locker {
	return openWith(t, memory, lock.Options{})
}

func openWith(t *testing.T, memory *locktest.Memory, o lock.Options) locker {
	return certstorage.New(&certmagic.FileStorage{Path: t.TempDir()}, memory.Locker(t, lock.Config{}), o).(locker)
}

// Options by which a lock ends while a certificate is obtained are refused, and not found out by a
// second order.
func TestOptionsThatDoNotSuit(t *testing.T) {
	for name, o := range map[string]lock.Options{"Fixed": {Fixed: true}, "Heartbeat": {Heartbeat: time.Minute}} {
		l := openWith(t, locktest.StartMemory(t), o)
		require.ErrorContains(t, l.Lock(t.Context(), "any"), name)
		_, err := l.TryLock(t.Context(), "any")
		require.ErrorContains(t, err, name)
	}
}

// A lock is held until it is unlocked by name, however long that takes. Waiting ends with its
// context.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := locktest.StartMemory(t)
		first, second := open(t, memory), open(t, memory)
		require.NoError(t, first.Lock(t.Context(), "issue_cert_*.example"))
		time.Sleep(time.Hour)
		got, err := second.TryLock(t.Context(), "issue_cert_*.example")
		require.NoError(t, err)
		require.False(t, got)
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, second.Lock(limited, "issue_cert_*.example"), context.DeadlineExceeded)
		got, err = second.TryLock(t.Context(), "issue_cert_other.example")
		require.NoError(t, err)
		require.True(t, got, "another name")
		require.NoError(t, second.Unlock(t.Context(), "issue_cert_other.example"))
		require.NoError(t, first.RenewLockLease(t.Context(), "issue_cert_*.example", time.Minute))
		require.NoError(t, first.Unlock(t.Context(), "issue_cert_*.example"))
		require.ErrorIs(t, first.Unlock(t.Context(), "issue_cert_*.example"), lock.ErrNotHeld)
		require.NoError(t, second.Lock(t.Context(), "issue_cert_*.example"))
		require.NoError(t, second.Unlock(t.Context(), "issue_cert_*.example"))
		memory.Disconnect()
		_, err = second.TryLock(t.Context(), "any")
		require.ErrorIs(t, err, lock.ErrUnavailable)
		memory.Reconnect()
	})
}

// The end of a holder whose lock was lost does not release the lock of the next one, in the
// same process.
func TestLostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := locktest.StartMemory(t)
		first, other := open(t, memory), open(t, memory)
		require.NoError(t, first.Lock(t.Context(), "name"))
		memory.DeleteAll()
		time.Sleep(time.Minute)
		require.NoError(t, other.Lock(t.Context(), "name"))
		require.ErrorIs(t, first.RenewLockLease(t.Context(), "name", time.Minute), lock.ErrLost)
		require.NoError(t, other.Unlock(t.Context(), "name"))
		require.NoError(t, first.Lock(t.Context(), "name"), "another goroutine")
		require.NoError(t, first.RenewLockLease(t.Context(), "name", time.Minute))
		require.ErrorIs(t, first.Unlock(t.Context(), "name"), lock.ErrLost)
		got, err := other.TryLock(t.Context(), "name")
		require.NoError(t, err)
		require.False(t, got, "broken promise: the second hold is released by the first")
		require.NoError(t, first.Unlock(t.Context(), "name"))
		require.ErrorIs(t, first.RenewLockLease(t.Context(), "name", time.Minute), lock.ErrLost)
	})
}

// A server that loses its lock between two attempts of certmagic, which go on for a month, obtains its
// certificate with the next one, under the lock.
func TestLossBetweenTwoAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := locktest.StartMemory(t)
		issuer, attempts := newAuthority(t), 0
		issuer.fail = func() error {
			if attempts++; attempts == 1 {
				time.AfterFunc(time.Second, memory.DeleteAll)
				return errors.New("try again")
			}
			got, err := open(t, memory).TryLock(t.Context(), "issue_cert_shop.example")
			assert.NoError(t, err)
			assert.False(t, got, "broken promise: the attempt has no lock")
			return nil
		}
		begun := time.Now()
		server := newConfig(t, open(t, memory), issuer)
		require.NoError(t, server.ObtainCertAsync(t.Context(), "shop.example"))
		require.Less(t, time.Since(begun), time.Hour)
		got, err := open(t, memory).TryLock(t.Context(), "issue_cert_shop.example")
		require.NoError(t, err)
		require.True(t, got, "it is unlocked")
	})
}

// The data are those of the storage.
func TestData(t *testing.T) {
	s := certstorage.New(&certmagic.FileStorage{Path: t.TempDir()}, locktest.New(t, lock.Config{}), lock.Options{})
	require.NoError(t, s.Store(t.Context(), "a/b", []byte("text")))
	text, err := s.Load(t.Context(), "a/b")
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
}
