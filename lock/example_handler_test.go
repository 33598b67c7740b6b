package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// shipping is an HTTP handler that ships an order, one request at a time in the whole
// fleet. Its work stops when the client has gone or the lease is lost.
type shipping struct {
	locker *lock.Locker
	wait   time.Duration // for another request that ships the same order
	ship   func(ctx context.Context, order string, token int64) error
}

func (s *shipping) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	order := r.PathValue("order")
	lease, err := s.locker.Mutex("orders:" + order).MaxWait(s.wait).Lock(r.Context())
	switch {
	case errors.Is(err, lock.ErrNotAcquired):
		http.Error(w, "another request ships this order", http.StatusConflict)
		return
	case err != nil:
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	defer lease.Unlock(r.Context())
	ctx, cancel := lease.Within(r.Context()) // ends with the request, and with the lease
	defer cancel()
	err = s.ship(ctx, order, lease.Token())
	switch {
	case errors.Is(context.Cause(ctx), lock.ErrLost):
		http.Error(w, "the lock was lost: look whether the order is shipped", http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		fmt.Fprintln(w, "shipped")
	}
}

// An HTTP handler under a lock, and the shutdown of its server.
func Example_httpHandler() {
	var t locktest.Scope // instead of a server; a program: redisstore.Open and lock.New
	defer t.End()
	redis := locktest.StartMemory(&t)
	locker := redis.Locker(&t, lock.Config{TTL: 9 * time.Second, RequestTimeout: time.Minute})

	working, ended := make(chan string), make(chan error)
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{order}/ship", &shipping{
		locker: locker,
		wait:   20 * time.Millisecond,
		ship: func(ctx context.Context, order string, _ int64) error {
			if order == "1" {
				return nil
			}
			working <- order
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return context.Cause(ctx)
		},
	})
	server := httptest.NewServer(mux)
	post := func(ctx context.Context, order string) string {
		request, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/orders/"+order+"/ship", nil)
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			return "the client has gone"
		}
		defer reply.Body.Close()
		return reply.Status
	}
	ctx := context.Background()

	fmt.Println(post(ctx, "1"))

	client, leave := context.WithCancel(ctx)
	go post(client, "2")
	<-working
	fmt.Println("meanwhile:", post(ctx, "2"))
	leave()
	fmt.Println("the work of the first one:", <-ended)

	reply := make(chan string)
	go func() { reply <- post(ctx, "3") }()
	<-working
	redis.Delete("orders:3") // the server loses its data
	fmt.Println("lost:", errors.Is(<-ended, lock.ErrLost))
	fmt.Println(<-reply)

	server.Close() // a program: http.Server.Shutdown, which waits for the requests; then the locks
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	fmt.Println("shut down:", locker.Shutdown(limited))
	// Output:
	// 200 OK
	// meanwhile: 409 Conflict
	// the work of the first one: context canceled
	// lost: true
	// 503 Service Unavailable
	// shut down: <nil>
}
