//go:build unix

package demo

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/bench/hostclock"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/page"
)

var writePicture = flag.Bool("write-picture", false, "write the picture of a lock into docs/lock.svg")

// The picture of README is what the demo draws of one lock, at instants that are fixed: a lease
// of three seconds, of which the first holder is frozen.
func TestPictureOfALock(t *testing.T) {
	picture := pictureOfALock()
	file := filepath.Join("..", "..", "..", "..", "docs", "lock.svg")
	if *writePicture {
		require.NoError(t, os.WriteFile(file, []byte(picture), 0o644)) //nolint:gosec // it is published
	}
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(written), picture, "make picture writes it")
}

func pictureOfALock() string {
	at := func(ms int) hostclock.Instant { return hostclock.Instant(time.Duration(ms) * time.Millisecond) }
	lives := &timeline{begin: at(0)}
	const first, second = 41, 42
	for id, token := range []int{first, second} {
		lives.started(id+1, at(0))
		lives.process(id + 1).name = fmt.Sprintf("token %d", token)
	}
	lives.note(1, workerEvent{Kind: eventHolding, Token: first, Asked: at(200), From: at(250), Until: at(5150)})
	for _, renewed := range []int{1250, 2250} {
		lives.process(1).marks = append(lives.process(1).marks, mark{markRenewed, at(renewed), first, ""})
	}
	lives.froze(1, first, at(2900))
	lives.note(2, workerEvent{Kind: eventHeld, Token: second, Asked: at(1500), From: at(5250), Until: at(9000), Accepted: true})
	for _, renewed := range []int{6250, 7250, 8250} {
		lives.process(2).marks = append(lives.process(2).marks, mark{markRenewed, at(renewed), second, ""})
	}
	lives.thawed(1, first, at(7000))
	lives.note(1, workerEvent{Kind: eventLost, Token: first, At: at(7020), Cause: "expired here"})
	lives.note(1, workerEvent{Kind: eventStale, Token: first, At: at(7500), Until: at(5150)})
	lives.ended(1, at(9600))
	lives.ended(2, at(9600))
	lives.finish(at(9600))
	drawn := slices.DeleteFunc(shapes(), func(s [2]string) bool { return s[1] == "killed" || s[1] == "deleted on the server" })
	return timelineChart(lives, timelineWindow{
		from: lives.begin, until: lives.end, zero: lives.begin, unit: time.Second, title: "seconds",
		narrow: 480, style: page.ChartStyle + timelineStyle, legend: drawn,
	}, "A lock whose holder is frozen", lives.processes, nil) + "\n"
}
