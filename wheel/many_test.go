package wheel

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Very many wheels alive at once are a design error. The 65th live wheel causes a
// warning, at most once a minute like all others; stopped wheels do not count.
func TestManyWheelsAreWarnedOf(t *testing.T) {
	before := crowded.next.Swap(0)
	t.Cleanup(func() { crowded.next.Store(before) })
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var living []*Wheel
		begin := func() {
			w, err := New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			living = append(living, w)
		}
		end := func() {
			living[0].Stop()
			living = living[1:]
		}
		said := func(want int) {
			t.Helper()
			synctest.Wait()
			n := strings.Count(log.String(), "very many wheels")
			require(t, n == want, "said %d times, want %d", n, want)
		}
		for range 200 { // one after the other
			begin()
			end()
		}
		for alive.Load() < manyWheels {
			begin()
		}
		said(0)
		begin()
		said(1)
		for range 20 { // on and off the edge
			end()
			begin()
		}
		said(1)
		time.Sleep(quiet)
		end()
		begin()
		said(2)
		for len(living) > 0 {
			living[0].Stop() // a second Stop does not count twice
			end()
		}
		for alive.Load() < manyWheels {
			begin()
		}
		said(2)
		for len(living) > 0 {
			end()
		}
	})
}

// A clock that is set back does not silence a warning for as long.
func TestWarningAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		logger := slog.New(slog.NewTextHandler(&log, nil))
		var w warning
		w.next.Store(time.Now().Add(time.Hour).UnixNano())
		w.warn(logger, "mind the gap")
		w.warn(logger, "mind the gap")
		synctest.Wait()
		n := strings.Count(log.String(), "mind the gap")
		check(t, n == 1, "said %d times, want once", n)
	})
}
