package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/leasewheel/leasewheel/lock"
)

// Readers hold the lock together. A reader does not become a writer; a writer may go on as a reader.
func ExampleReadWrite() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	catalog := locker.ReadWrite("catalog")

	reader, err := catalog.Read().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	other, err := catalog.Read().TryLock(ctx)
	fmt.Println("another reader:", err)
	_, err = catalog.Write().TryLock(ctx)
	fmt.Println("a writer is refused:", errors.Is(err, lock.ErrNotAcquired))
	_, err = catalog.Write().TryLock(reader.Context())
	fmt.Println("a reader that writes:", errors.Is(err, lock.ErrUpgrade))
	if err := errors.Join(reader.Unlock(ctx), other.Unlock(ctx)); err != nil {
		log.Fatal(err)
	}

	writer, err := catalog.Write().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// The change is made; what follows only reads it, so others may read, too.
	rest, err := catalog.Read().Lock(writer.Context())
	if err != nil {
		log.Fatal(err)
	}
	if err := writer.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	other, err = catalog.Read().TryLock(ctx)
	fmt.Println("beside the former writer:", err)
	if err := errors.Join(rest.Unlock(ctx), other.Unlock(ctx)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// another reader: <nil>
	// a writer is refused: true
	// a reader that writes: true
	// beside the former writer: <nil>
}
