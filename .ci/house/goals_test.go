package main

import (
	"os"
	"testing"
)

// The goals of the structure that are reached. What is added beyond one takes out as much.
const (
	mostClimb     = 18  // percent of the references of lock, and of the Redis store
	mostExported  = 150 // names of lock
	mostWords     = 55_000
	mostDecisions = 8_000 // words
	mostFiles     = 12    // of the locks that an uncontended Lock enters
	mostReturns   = 2     // to one of them
)

const repository = "../.."

func TestPackagesKeepTheirGoals(t *testing.T) {
	for _, folder := range []string{"lock", "lock/redisstore", "lock/redisstore/internal/transport"} {
		p, err := load(repository, folder)
		if err != nil {
			t.Fatal(err)
		}
		if climb := percent(len(p.climbing()), len(p.references)); len(p.references) == 0 || climb > mostClimb {
			t.Errorf("%s: %.1f %% of %d references climb, at most %d %%: %v", folder, climb, len(p.references), mostClimb, p.climbing())
		}
		if n := len(p.exported); n == 0 || folder == "lock" && n > mostExported {
			t.Errorf("%s: %d exported names, at most %d", folder, n, mostExported)
		}
	}
}

func TestDocumentsKeepTheirGoals(t *testing.T) {
	words, err := words(repository)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, n := range words {
		sum += n
	}
	if sum == 0 || sum > mostWords {
		t.Errorf("the documents have %d words, at most %d", sum, mostWords)
	}
	if n := words["docs/decisions.md"]; n == 0 || n > mostDecisions {
		t.Errorf("docs/decisions.md has %d words, at most %d", n, mostDecisions)
	}
}

// A Lock is read from its call to its lease through few files, each of them once.
func TestRoadKeepsItsGoals(t *testing.T) {
	server := os.Getenv("REDIS_SERVER")
	if server == "" {
		if os.Getenv("REQUIRE_REDIS") != "" {
			t.Fatal("REDIS_SERVER names no redis-server")
		}
		t.Skip("REDIS_SERVER names no redis-server")
	}
	// What else the program does meanwhile, on a machine that stalls, only lengthens a road.
	for tries := 1; ; tries++ {
		roads, err := roads(repository, server)
		if err != nil {
			t.Fatal(err)
		}
		if len(roads) != 3 {
			t.Fatalf("%d roads, not those of a Lock, its Unlock, and a Lock that waits", len(roads))
		}
		files, functions, returns := roads[0].measure("lock/")
		switch {
		case functions > 0 && files <= mostFiles && returns <= mostReturns:
			return
		case tries == 10:
			t.Fatalf("%s enters %d files with %d returns, at most %d and %d; make road prints them", roads[0].name, files, returns, mostFiles, mostReturns)
		}
	}
}
