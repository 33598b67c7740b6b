package redisreplies_test

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }
