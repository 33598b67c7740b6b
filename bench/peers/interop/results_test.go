//go:build real

package interop

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// result is a row of docs/results/interop.tsv.
type result struct {
	scenario  string // its number and name
	client    string // the library and its version
	kind      string
	direction string
	outcome   string
}

// Directions.
const (
	both    = "both"
	theirs  = "→ Go" // the other client holds or releases, ours waits
	ours    = "Go →" // ours holds or releases, the other client waits
	gapDash = "–"
)

var results resultTable

type resultTable struct {
	mu   sync.Mutex
	rows map[result]string // by the row without its outcome
}

// record adds a row once t has ended. Figures come after "ok".
func record(t *testing.T, scenario, client, kind, direction string, figures func() string) {
	t.Helper()
	t.Cleanup(func() {
		outcome := "ok"
		switch {
		case t.Failed():
			outcome = "FAILED"
		case t.Skipped():
			return
		}
		if figures != nil {
			if text := figures(); text != "" {
				outcome += ", " + text
			}
		}
		results.mu.Lock()
		defer results.mu.Unlock()
		if results.rows == nil {
			results.rows = make(map[result]string)
		}
		results.rows[result{scenario: scenario, client: client, kind: kind, direction: direction}] = outcome
	})
}

// write writes the rows as tab-separated values.
func (r *resultTable) write(path string) error {
	return os.WriteFile(path, []byte(r.table(time.Now())), 0o644)
}

// table returns the rows in the order of their scenarios.
func (r *resultTable) table(day time.Time) string {
	rows := make([]result, 0, len(r.rows))
	for row, outcome := range r.rows {
		row.outcome = outcome
		rows = append(rows, row)
	}
	number := func(scenario string) (n int) {
		_, _ = fmt.Sscan(scenario, &n)
		return n
	}
	slices.SortFunc(rows, func(a, b result) int {
		return cmp.Or(cmp.Compare(number(a.scenario), number(b.scenario)), strings.Compare(a.scenario, b.scenario),
			strings.Compare(a.kind, b.kind), strings.Compare(a.direction, b.direction), strings.Compare(b.client, a.client))
	})
	var b strings.Builder
	b.WriteString("scenario\tclient\tkind\tdirection\tresult\tlast seen\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\t%s\n", row.scenario, row.client, row.kind, row.direction, row.outcome, day.Format(time.DateOnly))
	}
	return b.String()
}
