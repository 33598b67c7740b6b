package lockotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/observe"
)

// The attributes of spans. errorTypeKey is of the semantic conventions.
const (
	spanLockerKey  = attribute.Key("leasewheel.locker")
	spanKindKey    = attribute.Key("leasewheel.lock.kind")
	spanNameKey    = attribute.Key("leasewheel.lock.name")
	spanOutcomeKey = attribute.Key("leasewheel.outcome")
	errorTypeKey   = attribute.Key("error.type")
)

// Observer returns the observer that measures the waits and holds of a locker, and makes
// their spans. It belongs into the locker's [lock.Config]; see [observe.Join] to use
// it beside another one.
func (t *Telemetry) Observer(locker string) *observe.Observer {
	o := observer{Telemetry: t, locker: exporter.Label(locker)}
	return &observe.Observer{Acquired: o.acquired, Ended: o.ended}
}

// observer observes one locker.
type observer struct {
	*Telemetry
	locker string
}

func (o observer) acquired(ctx context.Context, a observe.Acquired) {
	end := time.Now()
	outcome := a.Outcome
	ctx, span := o.start(ctx, "lock.acquire", a.Kind, a.Name, outcome, end.Add(-a.Waited))
	if a.Queued > 0 {
		_, wait := o.tracer.Start(ctx, "lock.wait", trace.WithTimestamp(end.Add(-a.Queued)))
		wait.End(trace.WithTimestamp(end))
	}
	if outcome == observe.Failed {
		fail(span, a.Err)
	}
	span.End(trace.WithTimestamp(end))
	o.waits.Record(ctx, a.Waited.Seconds(), o.attributes(a.Kind, a.Name, outcome))
}

func (o observer) ended(ctx context.Context, e observe.Ended) {
	end := time.Now()
	outcome := e.Outcome
	ctx, span := o.start(ctx, "lock.hold", e.Kind, e.Name, outcome, end.Add(-e.Held))
	if outcome != observe.Released {
		fail(span, e.Err)
	}
	if outcome == observe.Lost {
		_, lose := o.tracer.Start(ctx, "lock.lose", trace.WithTimestamp(end))
		fail(lose, e.Err)
		lose.End(trace.WithTimestamp(end))
	}
	span.End(trace.WithTimestamp(end))
	o.holds.Record(ctx, e.Held.Seconds(), o.attributes(e.Kind, e.Name, outcome))
}

// start starts a span at an instant in the past.
func (o observer) start(ctx context.Context, span string, kind driver.Kind, name string, outcome observe.Outcome, at time.Time) (context.Context, trace.Span) {
	attributes := []attribute.KeyValue{
		spanLockerKey.String(o.locker), spanKindKey.String(exporter.Word(kind.String())), spanOutcomeKey.String(string(outcome)),
	}
	if !o.config.HideNames {
		attributes = append(attributes, spanNameKey.String(name))
	}
	return o.tracer.Start(ctx, span, trace.WithTimestamp(at), trace.WithAttributes(attributes...))
}

// attributes returns the attributes of a wait or a hold in metrics.
func (o observer) attributes(kind driver.Kind, name string, outcome observe.Outcome) metric.MeasurementOption {
	attributes := []attribute.KeyValue{
		lockerKey.String(o.locker), kindKey.String(exporter.Word(kind.String())), outcomeKey.String(string(outcome)),
	}
	if o.label != nil {
		if label := o.label.Of(kind, name); label != "" {
			attributes = append(attributes, lockKey.String(label))
		}
	}
	return metric.WithAttributes(attributes...)
}

// fail marks a span as failed. The text of the error has the lock's name, so it is left out.
func fail(span trace.Span, err error) {
	reason := errorType(err)
	span.SetStatus(codes.Error, reason)
	span.SetAttributes(errorTypeKey.String(reason))
}

// errorType returns one of few words for an error; "_OTHER" is that of the conventions.
func errorType(err error) string {
	if lost, ok := errors.AsType[*lock.LostError](err); ok {
		return exporter.Word(lost.Cause.String())
	}
	for _, known := range []struct {
		err  error
		word string
	}{
		{lock.ErrClosed, "closed"},
		{lock.ErrForeign, "foreign"},
		{lock.ErrUnavailable, "unavailable"}, // a request's own deadline may be behind it
		{context.Canceled, "canceled"},
		{context.DeadlineExceeded, "deadline_exceeded"},
	} {
		if errors.Is(err, known.err) {
			return known.word
		}
	}
	return "_OTHER"
}
