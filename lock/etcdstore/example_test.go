package etcdstore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/etcdstore"
)

func Example() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:         strings.Split(os.Getenv("ETCD_MEMBERS"), ","), // all of them, and no balancer
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := etcdstore.New(client, etcdstore.Config{Prefix: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	locker, err := lock.New(store, lock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	err = locker.Mutex("orders:42").Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("it is ours, also while the leader changes, until ctx ends")
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}
