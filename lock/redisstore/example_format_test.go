package redisstore_test

import (
	"fmt"
	"log"

	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// A fleet with redsync or redislock can migrate service by service: both see the same
// locks.
func ExampleFormat() {
	store, err := redisstore.Open("redis://127.0.0.1:6379", redisstore.Config{Format: redisstore.FormatPlain})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	fmt.Println("locks are kept in the format", redisstore.FormatPlain)
	// Output: locks are kept in the format plain
}

func ExampleParseFormat() {
	format, err := redisstore.ParseFormat("plain")
	fmt.Println(format, err)
	_, err = redisstore.ParseFormat("zookeeper")
	fmt.Println(err)
	// Output:
	// plain <nil>
	// redisstore: there is no format "zookeeper"; accepted are redisson and plain
}
