package panics

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// stuck is an error whose text waits, as for a lock that the function which panicked still holds.
type stuck struct{ until <-chan struct{} }

func (s stuck) Error() string { <-s.until; return "no longer stuck" }

// The value of a panic, whose text is a method of the user's, is not printed before it is read.
func TestPanicThatCannotBePrinted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		returned := make(chan error, 1)
		go func() { returned <- Protect("the client", func() error { panic(stuck{until}) }) }()
		synctest.Wait()
		close(until)
		require.Len(t, returned, 1, "broken promise: it was printed at once")
		require.ErrorContains(t, <-returned, "the client panicked: no longer stuck")
	})
}
