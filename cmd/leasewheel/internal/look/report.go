package look

import (
	"time"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// LockReport is a lock in JSON. docs/lock.schema.json describes it.
type LockReport struct {
	Server      string         `json:"server,omitempty"`
	Name        string         `json:"name"`
	Held        bool           `json:"held"`
	Kind        string         `json:"kind"`
	Foreign     string         `json:"foreign,omitempty"`
	Count       *int64         `json:"count,omitempty"`
	TTL         time.Duration  `json:"ttl_ns"`
	Token       int64          `json:"token"`
	HolderCount int64          `json:"holder_count"`
	Holders     []holderReport `json:"holders"`
	WaiterCount int64          `json:"waiter_count"`
	Waiters     []waiterReport `json:"waiters"`
}

type holderReport struct {
	Owner  string        `json:"owner"`
	Write  bool          `json:"write"`
	Holds  int64         `json:"holds"`
	TTL    time.Duration `json:"ttl_ns"`
	Since  *time.Time    `json:"since,omitempty"`
	Client clientReport  `json:"client"`
}

type waiterReport struct {
	Owner  string        `json:"owner"`
	TTL    time.Duration `json:"ttl_ns"`
	Since  *time.Time    `json:"since,omitempty"`
	Client clientReport  `json:"client"`
}

type clientReport struct {
	ID      string     `json:"id"`
	Host    string     `json:"host,omitempty"`
	Process string     `json:"process,omitempty"`
	PID     int        `json:"pid,omitempty"`
	Label   string     `json:"label,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
}

// reportOf returns the report of a lock, with its server if there are several.
func reportOf(server string, info *driver.Info) LockReport {
	r := LockReport{
		Server: server,
		Name:   info.Name, Held: info.Held(), Kind: kindName(info), Foreign: info.Foreign, TTL: info.TTL, Token: info.Token,
		HolderCount: info.HolderCount, Holders: []holderReport{},
		WaiterCount: info.WaiterCount, Waiters: []waiterReport{},
	}
	if info.Counted {
		r.Count = &info.Count
	}
	for _, h := range info.Holders {
		r.Holders = append(r.Holders, holderReport{h.Owner, h.Write, h.Holds, h.TTL, output.Instant(h.Since), clientReportOf(h.Client)})
	}
	for _, w := range info.Waiters {
		r.Waiters = append(r.Waiters, waiterReport{w.Owner, w.TTL, output.Instant(w.Since), clientReportOf(w.Client)})
	}
	return r
}

func clientReportOf(c driver.Client) clientReport {
	return clientReport{c.ID, c.Host, c.Process, c.PID, c.Label, output.Instant(c.Since)}
}

// kindName returns the kind of a lock in one word: "free" if it has no holder, "foreign"
// if the name has a value that is no lock of ours.
func kindName(info *driver.Info) string {
	switch {
	case info.Foreign != "":
		return "foreign"
	case !info.Held() && !info.Counted:
		return "free"
	}
	return info.Kind.Word()
}

// sinceThen returns the age of an instant of the server's clock.
func sinceThen(t, now time.Time) string {
	d := max(now.Sub(t), 0)
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
