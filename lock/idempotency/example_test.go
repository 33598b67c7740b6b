package idempotency_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/idempotency"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// A client repeats an order, since it got no reply. There is one order.
func Example() {
	var t locktest.Scope // instead of servers; a program: redisstore.Open, lock.New and redisreplies.New
	defer t.End()
	locker, replies := locktest.New(&t, lock.Config{}), idempotency.NewMemory()

	orders := 0
	order := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempt, _ := idempotency.From(r.Context())
		orders++ // INSERT INTO orders (key, …), with attempt.Key: for a process that dies here
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "order %d, key %s", orders, attempt.Key)
	})
	once, err := idempotency.New(locker, replies, idempotency.Config{
		Scope: func(r *http.Request) string { return r.Header.Get("Account") }, // who was authenticated
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", once(order))

	request := func(body string) {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", `"8e03978e"`)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %q\n", w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
	}
	request("two books")
	request("two books")
	request("three books")
	// Output:
	// 201 order 1, key 8e03978e, replayed: ""
	// 201 order 1, key 8e03978e, replayed: "true"
	// 422 {"title":"Unprocessable Entity","status":422,"detail":"this Idempotency-Key was used for another request"}, replayed: ""
}
