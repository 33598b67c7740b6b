package exportertest

import (
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// Exporter is what the tests use of an exporter.
type Exporter interface {
	Observer(name string) *observe.Observer
	AddLocker(name string, l *lock.Locker) (remove func())
	AddWatchdog(name string, w *renewal.Watchdog) (remove func())
	AddWheel(name string, w *wheel.Wheel) (remove func())
}

// Patient is the config of a locker in real time, on a machine that may be busy.
func Patient(observer *observe.Observer) lock.Config {
	return lock.Config{Observer: observer, TTL: time.Hour, RequestTimeout: time.Minute}
}
