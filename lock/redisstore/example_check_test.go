package redisstore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// A program examines its server when it starts, as the user that it is, and reports what
// breaks a promise.
func ExampleStore_Check() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := miniredis.NewMiniRedis() // stands for a server that reveals little about itself
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	store, err := redisstore.Open("redis://"+server.Addr(), redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	report, err := store.Check(ctx, driver.CheckOptions{TTL: time.Minute, Name: "orders:"})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range report.Findings {
		fmt.Printf("%v: %s\n  %s\n", f.Severity, f.Found, f.Promise)
	}
	// Output:
	// note: the server does not answer INFO to this user, so version, eviction, memory, persistence and replicas are known in part or not at all
	//   not examined
	// note: the server does not answer CONFIG GET to this user, so appendfsync, timeout and tcp-keepalive are not known
	//   not examined
}
