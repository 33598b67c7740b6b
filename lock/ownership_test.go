package lock

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// An ownership gives back each field of the hold that it was made from, though it keeps
// most holds only as the name, owner and TTL of their lease.
func TestOwnershipKeepsEveryFieldOfItsHold(t *testing.T) {
	kind := reflect.TypeFor[driver.Hold]()
	for i := range kind.NumField() {
		field := kind.Field(i)
		synctest.Test(t, func(t *testing.T) {
			l, err := New(noStore{}, Config{})
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close(t.Context())) }()

			h := driver.Hold{Kind: KindFair, Name: "a", Owner: "me:1", Count: 1, TTL: time.Minute}
			switch value := reflect.ValueOf(&h).Elem().Field(i); value.Kind() {
			case reflect.String:
				value.SetString("another")
			case reflect.Bool:
				value.SetBool(true)
			case reflect.Slice:
				value.Set(reflect.ValueOf([]string{"another"}))
			case reflect.Uint8:
				value.SetUint(uint64(KindWrite))
			default:
				value.SetInt(int64(time.Hour))
			}
			own := newOwnership(l, h, h.TTL, new(Options), grant{}, time.Time{})
			own.lease, err = l.watchdog.Watch(renewal.Spec{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL, Granted: time.Now()})
			require.NoError(t, err)
			require.Equal(t, h, *own.hold(h.Count), field.Name)
			require.NoError(t, own.lease.Stop(t.Context()))
		})
	}
}

// noStore is a store that is not asked.
type noStore struct{ driver.Store }
