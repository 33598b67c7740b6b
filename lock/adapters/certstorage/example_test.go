package certstorage_test

import (
	"context"
	"fmt"
	"os"

	"github.com/caddyserver/certmagic"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/adapters/certstorage"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

func ExampleNew() {
	var t locktest.Scope // instead of a server; a program: redisstore.Open and lock.New
	defer t.End()
	folder, err := os.MkdirTemp("", "certificates") // shared by the servers
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)

	storage := certstorage.New(&certmagic.FileStorage{Path: folder}, locktest.New(&t, lock.Config{}), lock.Options{})
	// certmagic.Default.Storage = storage
	ctx := context.Background()
	fmt.Println(storage.Lock(ctx, "issue_cert_shop.example"))
	fmt.Println(storage.Unlock(ctx, "issue_cert_shop.example"))
	// Output:
	// <nil>
	// <nil>
}
