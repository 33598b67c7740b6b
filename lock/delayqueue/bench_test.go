package delayqueue_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// payload is the payload of every message of the benchmarks.
var payload = make([]byte, 100)

func BenchmarkPut(b *testing.B) {
	q := open(b, redistest.Start(b, redistest.Config{}).Client(b), config{})
	for b.Loop() {
		_, err := q.Put(b.Context(), message{Payload: payload, Delay: time.Hour})
		require.NoError(b, err)
	}
}

func BenchmarkPutAll(b *testing.B) {
	q := open(b, redistest.Start(b, redistest.Config{}).Client(b), config{})
	messages := make([]message, b.N)
	for i := range messages {
		messages[i] = message{ID: strconv.Itoa(i), Payload: payload, Delay: time.Hour}
	}
	b.ResetTimer()
	_, err := q.PutAll(b.Context(), messages)
	require.NoError(b, err)
}

// BenchmarkMessages measures the time of a message from claim to acknowledgement, for
// handlers that do nothing, with as many messages in hand as possible.
func BenchmarkMessages(b *testing.B) {
	b.Run("impl=delayqueue", func(b *testing.B) {
		for _, concurrency := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprint("concurrency=", concurrency), func(b *testing.B) { handleAll(b, concurrency) })
		}
	})
}

// handleAll handles b.N due messages.
func handleAll(b *testing.B, concurrency int) {
	q := open(b, redistest.Start(b, redistest.Config{}).Client(b), config{})
	messages := make([]message, b.N)
	for i := range messages {
		messages[i] = message{ID: strconv.Itoa(i), Payload: payload}
	}
	put(b, q, messages...)
	var handled atomic.Int64
	all := make(chan struct{})
	b.ResetTimer()
	stop := work(b, q, succeed, worker{Concurrency: concurrency, Report: func(report) {
		if handled.Add(1) == int64(b.N) {
			close(all)
		}
	}})
	<-all
	b.StopTimer()
	stop()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkMessageLateness measures how long after its due time a message reaches its
// handler, for messages that are due a ms apart.
func BenchmarkMessageLateness(b *testing.B) {
	b.Run("impl=delayqueue", func(b *testing.B) {
		q := open(b, redistest.Start(b, redistest.Config{}).Client(b), config{})
		first := time.Now().Add(time.Second).Truncate(time.Millisecond)
		messages := make([]message, b.N)
		for i := range messages {
			messages[i] = message{ID: strconv.Itoa(i), Payload: payload, Due: first.Add(time.Duration(i) * time.Millisecond)}
		}
		put(b, q, messages...)
		late := make(chan time.Duration, b.N)
		stop := work(b, q, func(_ context.Context, d *delivery) error {
			late <- time.Since(d.Due)
			return nil
		}, worker{})
		all := make([]time.Duration, 0, b.N)
		for range b.N {
			all = append(all, <-late)
		}
		stop()
		slices.Sort(all)
		b.ReportMetric(0, "ns/op")
		for _, p := range []float64{50, 99, 99.9} {
			b.ReportMetric(float64(percentile(all, p)), fmt.Sprintf("p%v-ns", p))
		}
	})
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p/100*float64(len(sorted))))]
}
