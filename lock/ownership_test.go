package lock

import (
	"reflect"
	"slices"
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
	for _, field := range fieldsOf(reflect.TypeFor[driver.Hold](), nil) {
		synctest.Test(t, func(t *testing.T) {
			l, err := New(noStore{}, Config{})
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()

			h := driver.Hold{Kind: driver.KindFair, Name: "a", Owner: "me:1", Count: 1, TTL: time.Minute}
			switch value := reflect.ValueOf(&h).Elem().FieldByIndex(field); value.Kind() {
			case reflect.String:
				value.SetString("another")
			case reflect.Bool:
				value.SetBool(true)
			case reflect.Slice:
				value.Set(reflect.ValueOf([]string{"another"}))
			case reflect.Uint8:
				value.SetUint(uint64(driver.KindWrite))
			default:
				value.SetInt(int64(time.Hour))
			}
			own, _ := newOwnership(&acquisition{request: request{locker: l, hold: &h}, ctx: t.Context()}, h, h.TTL, result{}, time.Time{})
			own.lease, err = l.watchdog.Watch(renewal.Spec{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL, Granted: time.Now()})
			require.NoError(t, err)
			require.Equal(t, h, *own.hold(h.Count), field)
			require.NoError(t, own.lease.Stop(t.Context()))
		})
	}
}

// fieldsOf returns the indexes of a struct's fields, and of those of the structs in it.
func fieldsOf(kind reflect.Type, at []int) (fields [][]int) {
	for i := range kind.NumField() {
		index := append(slices.Clone(at), i)
		if field := kind.Field(i).Type; field.Kind() == reflect.Struct {
			fields = append(fields, fieldsOf(field, index)...)
			continue
		}
		fields = append(fields, index)
	}
	return fields
}

// noStore is a store that is not asked.
type noStore struct{ driver.Store }
