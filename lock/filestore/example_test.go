//go:build linux

package filestore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/filestore"
)

// Another process that opens the folder has the same locks.
func ExampleNew() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	open := func() (*lock.Locker, func()) {
		store, err := filestore.New(filepath.Join(folder, "locks"))
		if err != nil {
			log.Fatal(err)
		}
		locker, err := lock.New(store, lock.Config{})
		if err != nil {
			log.Fatal(err)
		}
		return locker, func() {
			locker.Close()
			store.Close()
		}
	}
	one, closeOne := open()
	defer closeOne()
	other, closeOther := open()
	defer closeOther()

	lease, err := one.Mutex("photos").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = other.Mutex("photos").TryLock(ctx)
	fmt.Println("while it is held:", errors.Is(err, lock.ErrNotAcquired))
	fmt.Println("unlocked:", lease.Unlock(ctx) == nil)
	lease, err = other.Mutex("photos").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("by the other:", lease.Unlock(ctx) == nil)
	// Output:
	// while it is held: true
	// unlocked: true
	// by the other: true
}
