package terminal

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
)

// A job in the background repaints no line over the prompt of the shell. It prints its notes, and
// its line once it is in the foreground.
func TestMeterInTheBackground(t *testing.T) {
	screen, shown := commandtest.InBackground(t, func(terminal *os.File, toForeground func()) {
		painted := make(chan struct{}, 1)
		m := StartMeter(terminal, func() string {
			select {
			case painted <- struct{}{}:
			default:
			}
			return "progress"
		})
		awaitPaint := func() {
			for range 3 { // the first may be an earlier one, and the second may not be printed
				<-painted
			}
		}
		awaitPaint()
		m.Note("a note")
		awaitPaint()
		toForeground()
		awaitPaint()
		m.Stop()
	})
	if shown {
		assert.Regexp(t, `^a note\r\n(\r\x1b\[Kprogress)+\r\x1b\[K$`, screen)
	}
}
