# Everything that a developer runs. `make help` lists it.

SHELL := bash
.DEFAULT_GOAL := help

# Targets are relative, and recipes quote: the folder of a clone may have blanks in its name.
BIN := .cache/bin
LINT := $(BIN)/golangci-lint

# Modules beside the main one: what they require must never enter its go.mod.
# The tools are pinned in one too, but hold no code of ours.
NESTED := $(filter-out .ci/tools,$(patsubst %/go.mod,%,$(shell git ls-files '*/go.mod' ':!*/testdata/*')))

# Those of them that users import.
SHIPPED := $(filter lock/%,$(NESTED))

# The project's own tests take minutes. Those of the nested modules double that: they
# compile other libraries, and fetch and start other languages' clients. CI runs all.
TESTED := . $(if $(filter true,$(CI)),$(NESTED))

# A cached result is as good as a new one, but for CI, which shares its cache
# with earlier runs and is there to find out.
TESTFLAGS ?= $(if $(filter true,$(CI)),-count=1)

# With a server, and none of the tests that need one may be left out.
WITH_REDIS := export REDIS_SERVER REQUIRE_REDIS=1; REDIS_SERVER=$$(.ci/redis)

# Of the nested modules, which CI alone tests, some need PostgreSQL, or etcd.
WITH_SERVERS := $(WITH_REDIS)$(if $(filter true,$(CI)),; export POSTGRES_BIN PGBOUNCER ETCD_SERVER REQUIRE_POSTGRES=1; POSTGRES_BIN=$$(.ci/postgres); PGBOUNCER=$$(.ci/postgres --pgbouncer); ETCD_SERVER=$$(.ci/etcd))

# A program built with -race sleeps a second when it ends, for reports that others may
# be about to make: every package's tests do, and every process that they start. Ours
# have ended their goroutines by then.
export GORACE ?= atexit_sleep_ms=10

FUZZTIME ?= 1m
CHAOS_TIME ?= 10m
CHAOS_SEED ?= 0
DAYS ?= 365
BENCH ?= .
BENCHCOUNT ?= 5

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# How many packages are compiled or tested at a time: their tests wait as much as they compute.
PACKAGES ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

# Builds once for all runs: go run would link the program anew for each module.
TRIAL := $(BIN)/trial
.PHONY: $(TRIAL)
$(TRIAL):
	@go -C .ci/trial build -o '$(CURDIR)/$@' .

# The tests of nested modules wait for most of their time: modules are tested beside each other.
TEST := go test -race -p $(PACKAGES) $(TESTFLAGS) ./...

# go test vets for the likeliest mistakes as it compiles. make lint has all of vet.
.PHONY: test
test: $(if $(word 2,$(TESTED)),$(TRIAL)) ## Run the tests that logic decides, with the race detector; with CI=true those of nested modules too
	@set -eu; $(WITH_SERVERS); set -x; \
	$(if $(word 2,$(TESTED)),./$(TRIAL) beside $(TESTED) -- )$(TEST)

REALTIMES ?= 1

# The longest tests are those of nested modules, which therefore begin first.
.PHONY: test-real
test-real: $(TRIAL) ## Run the tests that real time decides, REALTIMES (1) times; what fails beside another runs again alone
	@set -eu; $(WITH_SERVERS); set -x; ./$(TRIAL) real -times $(REALTIMES) $(REALFLAGS) $(filter-out .,$(TESTED)) . -- ./...

FLAKES ?= 50

.PHONY: flakes
flakes: $(TRIAL) ## Run what make test runs FLAKES (50) times, shuffled, beside busy loops and a build; list what was red
	@set -eu; $(WITH_REDIS); set -x; ./$(TRIAL) flakes -times $(FLAKES) ./...

# The packages whose promises a server can break, without the race detector: make test has it.
SERVERS ?= redis-8 valkey-8 valkey-9 postgres-18 etcd-3.7

.PHONY: servers
servers: ## Run the tests of locks and queues on newer servers: SERVERS (redis-8 valkey-8 valkey-9 postgres-18 etcd-3.7)
	@set -eu; $(WITH_REDIS); export REQUIRE_POSTGRES=1; \
	for server in $(SERVERS); do \
		path=$$(.ci/servers $$server); \
		set -x; \
		case $$server in \
		postgres-*) POSTGRES_BIN=$$path PGBOUNCER=$$(.ci/postgres --pgbouncer) go -C lock/pgstore test $(TESTFLAGS) -timeout 15m ./...;; \
		etcd-*) ETCD_SERVER=$$path go -C lock/etcdstore test $(TESTFLAGS) -timeout 15m ./...;; \
		*) REDIS_SERVER=$$path go test $(TESTFLAGS) -timeout 15m ./lock/redisstore ./lock/delayqueue ./lock/quorum; \
			REDIS_SERVER=$$path go test $(TESTFLAGS) -run 'Cluster|Sentinel' ./lock/locktest/redistest;; \
		esac; \
	done

.PHONY: lint
lint: $(LINT) ## Check style, imports and mistakes, and that go.mod is tidy
	@set -eux; \
	for module in . $(NESTED); do \
		(cd $$module && '$(CURDIR)/$(LINT)' run --config '$(CURDIR)/.golangci.yml' --build-tags real ./...); \
		go -C $$module fix -tags real -diff ./...; \
		go -C $$module mod tidy -diff; \
	done

.PHONY: platforms
platforms: ## Check everything for every system and processor that is promised
	.ci/platforms

.PHONY: house
house: ## Measure the structure: lines, exported names, references that climb, words; details with HOUSE=package
	@go -C .ci/house run . '$(CURDIR)' $(HOUSE)

.PHONY: road
road: ## Print the files and functions that a Lock and an Unlock enter, and how often they return to a file
	@set -eu; $(WITH_REDIS); go -C .ci/house run . road '$(CURDIR)' "$$REDIS_SERVER"

.PHONY: cover
cover: ## Measure which code the tests reach; the report is .cache/cover.html
	@set -eu; $(WITH_REDIS); set -x; \
	mkdir -p .cache; \
	go test -coverprofile=.cache/cover.out -coverpkg=./... ./...
	go tool cover -html=.cache/cover.out -o .cache/cover.html
	@go tool cover -func=.cache/cover.out | tail -n 1

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (1m)
	@set -eu; \
	for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | sed -n '/^Fuzz/p'); do \
			(set -x; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package); \
		done; \
	done

.PHONY: chaos
chaos: ## Break servers, networks and processes at random for CHAOS_TIME (10m), from CHAOS_SEED, and check every promise
	@set -eu; $(WITH_REDIS); set -x; go test -tags real -count=1 -timeout 24h ./lock/locktest/chaos -run '^TestFaultBench$$' -v \
		-args -time $(CHAOS_TIME) -seed $(CHAOS_SEED) -active 0 -strict $(CHAOS_ARGS)

.PHONY: chaos-postgres
chaos-postgres: ## The same for PostgreSQL: its servers, replica, connections and pools
	@set -eu; export POSTGRES_BIN REQUIRE_POSTGRES=1; POSTGRES_BIN=$$(.ci/postgres); set -x; \
		go -C lock/pgstore test -tags real -count=1 -timeout 24h . -run '^TestFaultBench$$' -v -args -time $(CHAOS_TIME) -seed $(CHAOS_SEED)

.PHONY: year
year: ## Live through a virtual year, or DAYS, of leases and wheel under faults drawn at random
	go test -count=1 -timeout 24h ./renewal -run '^TestVirtualDays$$' -v -args -days $(DAYS)

.PHONY: planted
planted: ## Plant the bugs of lock/testdata/planted one at a time, and see each one caught; some with PLANTED=prefix
	@.ci/planted $(PLANTED)

.PHONY: bench
bench: ## Compare timers and locks with others' into docs/benchmarks.md, more than an hour; a part of it with BENCH=regexp
	@set -eu; $(WITH_REDIS); set -x; cd bench/peers && go run ./report -count $(BENCHCOUNT) \
		$(if $(filter .,$(BENCH)),-raw ../../docs/results/benchmarks.txt -all ../../docs/results/benchmarks.md -out ../../docs/benchmarks.md,-only '$(BENCH)')

SOAK ?= 5m

.PHONY: interop
interop: ## Run every version of the other clients against ours, and write what was seen into docs/results/interop.tsv
	@set -eu; $(WITH_REDIS); set -x; cd bench/peers && go test -tags real -count=1 -timeout 20m ./interop \
		-versions all -soak $(SOAK) -record '$(CURDIR)/docs/results/interop.tsv'

.PHONY: vuln
vuln: $(LINT) ## Look up known vulnerabilities in what we use; asks vuln.go.dev
	@set -eux; for module in . $(SHIPPED); do (cd $$module && '$(CURDIR)/$(BIN)/govulncheck' ./...); done

.PHONY: man
man: ## Write the man pages into docs/man from the commands' help
	go test -count=1 ./cmd/leasewheel -run '^TestManPages$$' -args -write-man

.PHONY: picture
picture: ## Draw the lock of README into docs/lock.svg, as the demo draws it
	go test -count=1 ./cmd/leasewheel/internal/demo -run '^TestPictureOfALock$$' -args -write-picture

.PHONY: release
release: ## Build what a release has into .cache/dist: binaries for all systems, man pages, checksums
	.ci/release

.PHONY: reproduce
reproduce: ## Build a release twice, from two folders and with two caches, and compare
	.ci/release --twice

.PHONY: api
api: ## Compare what the modules export with their last tags; an incompatible change has to stand in the changelog
	.ci/api

VERSION ?= v0.1.0

.PHONY: tags
tags: ## Tag a clone as VERSION (v0.1.0), and build from its tags, without a replace, what users build
	.ci/tag check $(VERSION)

.PHONY: demo
demo: ## Watch processes contend for one lock while holders freeze and die
	go run ./cmd/leasewheel demo

.PHONY: tools
tools: $(LINT) ## Build the pinned development tools into .cache/bin

# One build for all of them: go install knows what is pinned there.
$(LINT): .ci/tools/go.mod .ci/tools/go.sum
	cd .ci/tools && GOBIN='$(CURDIR)/$(BIN)' go install tool
	@touch $@

.PHONY: redis
redis: ## Print the path of a redis-server; installs one where it is missing
	@.ci/redis

.PHONY: postgres
postgres: ## Print the folder of PostgreSQL's programs; unpacks them where they are missing
	@.ci/postgres

.PHONY: clean
clean: ## Remove .cache: tools, unpacked servers, reports
	rm -rf .cache
