package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// A lock on three servers survives the failure of one, and cannot be acquired while two
// are down.
func Example() {
	var servers []*miniredis.Miniredis // stands for three machines
	var nodes []lock.Store
	for range 3 {
		server := miniredis.NewMiniRedis()
		if err := server.Start(); err != nil {
			log.Fatal(err)
		}
		defer server.Close()
		node, err := redisstore.Open("redis://"+server.Addr(), redisstore.Config{})
		if err != nil {
			log.Fatal(err)
		}
		defer node.Close()
		servers, nodes = append(servers, server), append(nodes, node)
	}
	store, err := quorum.New(nodes, quorum.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	locker, err := lock.New(store, lock.Config{TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	servers[0].Close()
	lease, err := locker.Mutex("orders:42").Lock(context.Background())
	fmt.Println("one server down:", err == nil && lease.Valid())

	servers[1].Close()
	_, err = locker.Mutex("orders:43").TryLock(context.Background())
	var said *quorum.Error
	if errors.As(err, &said) {
		done := 0
		for _, vote := range said.Votes { // vote.Err is why node vote.Node failed
			if vote.Said == quorum.Done {
				done++
			}
		}
		fmt.Printf("two servers down: a majority of %d is needed: %v\n", said.Majority, done >= said.Majority)
	}
	fmt.Println("unavailable, not taken:", errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrNotAcquired))
	// Output:
	// one server down: true
	// two servers down: a majority of 2 is needed: false
	// unavailable, not taken: true false
}

func ExampleStore_Supports() {
	var nodes []lock.Store
	for _, url := range []string{"redis://one:6379", "redis://two:6379", "redis://three:6379"} {
		node, err := redisstore.Open(url, redisstore.Config{})
		if err != nil {
			log.Fatal(err)
		}
		defer node.Close()
		nodes = append(nodes, node)
	}
	store, err := quorum.New(nodes, quorum.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	fmt.Println(store.Supports(driver.KindMutex))
	fmt.Println(store.Supports(driver.KindFair))
	// Output:
	// <nil>
	// lock: the store does not keep locks of this kind: a quorum supports no fair lock: each node would have a wait queue of its own, and no waiter is granted a majority if the heads differ: lock: the store has done nothing
}
