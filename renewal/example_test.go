package renewal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// Files is a lease service made of files in a directory that several processes share: the
// content of a file is the holder of the lease, its modification time the lease's end. It
// needs no server.
type Files struct{ dir string }

// Acquire creates the file, or takes it over from an owner whose time has passed.
// The rename makes one of several contenders win.
func (f Files) Acquire(key, owner string, ttl time.Duration) bool {
	path := filepath.Join(f.dir, key)
	if info, err := os.Stat(path); err == nil && time.Now().Before(info.ModTime()) {
		return false
	}
	os.Rename(path, path+"."+owner) // one contender moves an expired lease away
	defer os.Remove(path + "." + owner)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	defer file.Close()
	if _, err := file.WriteString(owner); err != nil {
		return false
	}
	ends := time.Now().Add(ttl)
	return os.Chtimes(path, ends, ends) == nil
}

// Group returns one group for all leases: the file system fails as a whole.
func (f Files) Group(string, any) string { return f.dir }

// Renew renews the leases of the items.
func (f Files) Renew(ctx context.Context, items []renewal.Item) {
	for i := range items {
		if ctx.Err() != nil {
			return // the rest is Unknown, and tried again
		}
		items[i].Outcome, items[i].Err = f.renew(&items[i])
	}
}

func (f Files) renew(l *renewal.Item) (renewal.Outcome, error) {
	path := filepath.Join(f.dir, l.Key)
	owner, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return renewal.Gone, nil
	case err != nil:
		return renewal.Unknown, err
	case string(owner) != l.Owner:
		return renewal.Taken, nil
	}
	ends := time.Now().Add(l.TTL)
	if err := os.Chtimes(path, ends, ends); err != nil {
		return renewal.Unknown, err
	}
	return renewal.Renewed, nil
}

// Leases kept in files, without a server: the watchdog renews one, and detects that another
// was deleted.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "leases")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	files := Files{dir}

	renewed := make(chan struct{}, 10)
	watchdog, err := renewal.New(files, renewal.Config{Observer: &renewal.Observer{Batch: func(b renewal.Batch) {
		if b.Renewed > 0 {
			renewed <- struct{}{}
		}
	}}})
	if err != nil {
		panic(err)
	}
	defer watchdog.Close(ctx)

	const ttl = time.Minute
	asked := time.Now().Add(-ttl / 3) // before the requests: a renewal is due after this time
	for _, key := range []string{"report", "orders"} {
		if !files.Acquire(key, "me", ttl) {
			panic(key + " is taken")
		}
	}
	os.Remove(filepath.Join(dir, "orders")) // as another process would
	watch := func(key string) *renewal.Lease {
		lease, err := watchdog.Watch(renewal.Spec{Key: key, Owner: "me", TTL: ttl, Granted: asked})
		if err != nil {
			panic(err)
		}
		return lease
	}
	kept, deleted := watch("report"), watch("orders")

	<-deleted.Context().Done()
	fmt.Println(context.Cause(deleted.Context()))

	<-renewed
	fmt.Println("held for", time.Until(kept.Until()).Round(ttl), "more; taken by another:", files.Acquire("report", "another", ttl))

	// No renewal is in flight once Stop has returned: the lease can be released.
	if err := kept.Stop(ctx); err == nil {
		os.Remove(filepath.Join(dir, "report"))
	}
	fmt.Println(kept.Err())

	// Output:
	// renewal: lease "orders" lost: deleted
	// held for 1m0s more; taken by another: false
	// renewal: lease released
}
