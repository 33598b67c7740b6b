package lockotel

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/internal/exporter/exportertest"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// After the script every metric and every span that OpenTelemetry exports is known, with its
// value.
func TestScriptedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Config{})
		ctx, root := h.tracer.Tracer("test").Start(t.Context(), "caller")
		exportertest.Play(ctx, t, h, func(script *exportertest.Script) {
			got := h.export(t)
			script.Compare(got.values)
			// The refusals after three and four seconds are between 2.5 and 5.
			refused := got.counts[`leasewheel.lock.wait{kind="mutex",locker="ours",outcome="refused"}`]
			assert.EqualValues(t, 2, refused[slices.Index(exporter.WaitBounds, 5)])

			assert.ElementsMatch(t, expected(script), describe(h.spans.GetSpans(), root.SpanContext().TraceID().String()))
			root.End()
		})
	})
}

// expected returns the spans of a script.
func expected(script *exportertest.Script) (spans []spanned) {
	for _, a := range script.Acquired {
		spans = append(spans, spanned{"lock.acquire", "caller", "ours " + a.Kind + " " + a.Name, a.Outcome, a.Failure, a.Waited})
		if a.Queued > 0 {
			spans = append(spans, spanned{name: "lock.wait", parent: "lock.acquire", took: a.Queued})
		}
	}
	for _, e := range script.Ended {
		spans = append(spans, spanned{"lock.hold", "caller", "ours " + e.Kind + " " + e.Name, e.Outcome, e.Failure, e.Held})
		if e.Outcome == "lost" {
			spans = append(spans, spanned{name: "lock.lose", parent: "lock.hold", failure: e.Failure})
		}
	}
	return spans
}

// spanned is what a test compares of a span.
type spanned struct {
	name, parent, lock, outcome, failure string
	took                                 time.Duration
}

// describe returns spans for comparison. Their trace must be the caller's, and they must end
// when their parents do, unless that is the caller.
func describe(stubs tracetest.SpanStubs, trace string) []spanned {
	byID := make(map[string]tracetest.SpanStub)
	for _, s := range stubs {
		byID[s.SpanContext.SpanID().String()] = s
	}
	var spans []spanned
	for _, s := range stubs {
		d := spanned{name: s.Name, parent: "caller", took: s.EndTime.Sub(s.StartTime)}
		if parent, ok := byID[s.Parent.SpanID().String()]; ok {
			d.parent = parent.Name
			if !parent.EndTime.Equal(s.EndTime) {
				d.parent += " that ends at another time"
			}
		}
		if s.Parent.TraceID().String() != trace {
			d.parent = "of another trace"
		}
		for _, a := range s.Attributes {
			switch a.Key {
			case spanNameKey:
				d.lock += a.Value.AsString()
			case spanKindKey:
				d.lock += a.Value.AsString() + " "
			case spanOutcomeKey:
				d.outcome = a.Value.AsString()
			case errorTypeKey:
				d.failure = a.Value.AsString()
			case spanLockerKey:
				d.lock = a.Value.AsString() + " " + d.lock
			default:
				d.failure += " with " + string(a.Key)
			}
		}
		if (s.Status.Code == codes.Error) != (d.failure != "") || s.Status.Description != d.failure {
			d.failure += " with status " + s.Status.Description
		}
		spans = append(spans, d)
	}
	return spans
}

// The translation of OTLP to Prometheus gives each metric the name that docs/metrics.md has
// for both, and none is missing.
func TestNamesInPrometheus(t *testing.T) {
	h := newHarness(t, Config{})
	l := locktest.New(t, exportertest.Patient(h.Observer("x")))
	h.AddLocker("x", l)
	require.NoError(t, l.Mutex("a").Do(t.Context(), func(context.Context) error { return nil }))
	e := h.export(t)
	var translated []string
	for instrument, kind := range e.kinds {
		name := strings.ReplaceAll(instrument, ".", "_")
		if e.units[instrument] == "s" {
			name += "_seconds"
		}
		if kind == "counter" {
			name += "_total"
		}
		translated = append(translated, name)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	require.NoError(t, err)
	var documented []string
	for _, match := range regexp.MustCompile("(?m)^\\| `(leasewheel_\\w+)`").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, match[1])
	}
	assert.ElementsMatch(t, documented, translated)
}
