package delayqueue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
)

// A page of what waits, with the first bytes of each payload.
func ExampleQueue_List() {
	queue, end := exampleQueue()
	defer end()
	ctx := context.Background()
	queue.PutAll(ctx, []delayqueue.Message{
		{ID: "reminder", Payload: []byte("the invoice of May"), Delay: time.Hour},
		{ID: "welcome", Payload: []byte("hello")},
		{ID: "survey", Payload: []byte("how was it?"), Delay: 24 * time.Hour},
	})

	page := 0
	for message, err := range queue.List(ctx, delayqueue.ListOptions{
		States:     []delayqueue.State{delayqueue.Ready, delayqueue.Delayed},
		MaxPayload: 7,
	}) {
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s, %v: %s (%d bytes)\n", message.ID, message.State, message.Payload, message.Size)
		if page++; page == 2 {
			break
		}
	}
	// Output:
	// welcome, ready: hello (5 bytes)
	// reminder, delayed: the inv (18 bytes)
}

func ExampleValidateID() {
	fmt.Println(delayqueue.ValidateID("invoice 7"))
	fmt.Println(delayqueue.ValidateID("invoice\n7"))
	// Output:
	// <nil>
	// delayqueue: invalid: the id of a message holds a control character
}
