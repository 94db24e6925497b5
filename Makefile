# Highwater's targets. `make help` prints every line below that has a `##`.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# How much of each; override on the command line: make fuzz FUZZ_SECONDS=600
FUZZ_SECONDS ?= 60
SIM_SEEDS ?= 10000
TORTURE_ROUNDS ?= 100
JOURNAL_SEEDS ?= 10000
TODOS_SEEDS ?= 10000
# Further flags for the overload experiments: make stress OVERLOAD=--quick
OVERLOAD ?=
# Flags for the plans: make bench BENCH='--rounds 2 --only one-user'
BENCH ?=
# Goes into the names of the plans' records, for a second build on one day: make bench RECORD=after
RECORD ?=
# Flags for the plan beside Kafka's producer test: make bench-kafka KAFKA='--rounds 3'
KAFKA ?=
# Flags for the plan of the ingest gateway: make bench-ingest INGEST='--rounds 15'
INGEST ?=
# Flags for the plan of load generators: make bench-load LOAD='--rounds 3 --only 64'
LOAD ?=
# They make network namespaces, which only root may do.
as_root = $(if $(filter 0,$(shell id -u)),,sudo)
# Fuzzing and Miri need a nightly compiler; everything else builds with the stable one.
NIGHTLY ?= nightly

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the release binaries into target/release
	cargo build --release --locked

.PHONY: run
run: ## Build the search service, start it with a test feed, print the URLs
	@scripts/run.sh

.PHONY: todos-full
todos-full: ## Start the Todo service with Postgres, Redis, Kafka, two instances, a worker and nginx; print the URLs
	@scripts/todos-full.sh

.PHONY: todos
todos: ## Build the Todo service, start it with everything embedded, print URLs and commands with a token
	cargo build --release --locked -p highwater-todos
	@target=$${CARGO_TARGET_DIR:-target}; exec "$$target/release/highwater-todos" --demo \
	  --listen "$${LISTEN:-127.0.0.1:8080}" --metrics "$${METRICS:-127.0.0.1:9090}" --data "$${DATA:-target/run/todos}"

.PHONY: test
test: ## Install what the tests need, then run all of them: format, lints, tests, docs, simulation
	@scripts/test.sh

# Instructions per request, counted under Valgrind: there is no noise, so two per cent are a regression.
instructions = cargo run --quiet --profile counted --locked -p highwater-instructions --

.PHONY: instructions
instructions: ## Count the instructions of a request, and compare them with the baseline
	@$(instructions) check

.PHONY: instructions-accept
instructions-accept: ## Make today's counts of instructions the baseline; commit it with the change that moved it
	@$(instructions) accept

.PHONY: torture
torture: ## Kill the gateway, Kafka and the Todo service under load, fill disks, change sinks, TORTURE_ROUNDS times (100), and check that all acknowledged records are there
	TORTURE_ROUNDS=$(TORTURE_ROUNDS) cargo test --locked -p highwater-ingest --test torture --test kafka -- --nocapture torture
	TORTURE_ROUNDS=$(TORTURE_ROUNDS) cargo test --locked -p highwater-todos --test kill
	TORTURE_ROUNDS=$(TORTURE_ROUNDS) cargo test --locked -p highwater-todos --test full -- --nocapture restores
	for round in $$(seq $(TORTURE_ROUNDS)); do \
		echo "full disks and changes of the sink, round $$round of $(TORTURE_ROUNDS)"; \
		cargo test --quiet --locked -p highwater-ingest --test kafka --test sink_changes -- full:: a_journal_becomes a_spool_becomes || exit 1; \
	done

.PHONY: journal-sim
journal-sim: ## Simulate JOURNAL_SEEDS (10000) journals on disks that tear writes, lose syncs and fill up
	JOURNAL_SEEDS=$(JOURNAL_SEEDS) cargo test --release --locked -p highwater-journal --lib -- --nocapture simulation::seeds

.PHONY: todos-sim
todos-sim: ## Simulate TODOS_SEEDS (10000) lives of the Todo service: killed workers, restores, clocks that jump, caches that miss changes
	TODOS_SEEDS=$(TODOS_SEEDS) cargo test --release --locked -p highwater-todos --lib -- --nocapture simulation::seeds

.PHONY: todos-visible
todos-visible: ## Measure how soon every instance shows a write, under load, while Redis is killed and hangs; two minutes
	cargo build --release --locked -p highwater-todos
	@mkdir -p bench/results
	TODOS_BIN=$(CURDIR)/target/release/highwater-todos VISIBLE_OUT=$(CURDIR)/bench/results/$$(date +%F)-todos-visible.json \
	  cargo test --locked -p highwater-todos --test full -- --ignored --nocapture --exact visible::within_100_ms

.PHONY: todos-workers
todos-workers: ## Measure how many commands one worker of the Todo service applies, and two; four minutes
	cargo build --release --locked -p highwater-todos
	@mkdir -p bench/results
	TODOS_BIN=$(CURDIR)/target/release/highwater-todos WORKERS_OUT=$(CURDIR)/bench/results/$$(date +%F)-todos-workers.json \
	  cargo test --locked -p highwater-todos --test full -- --ignored --nocapture --exact workers::two_beside_one

.PHONY: schemathesis
schemathesis: ## Call the search service, the Todo service and examples/everything as their documents say, 200 values for each operation
	HW_EXAMPLES=200 cargo test --locked -p highwater-search -p highwater-todos -p highwater-example-everything \
	  the_document_is_true_for_values_that_nobody_thought_of

.PHONY: compile-time
compile-time: ## Measure how long an application of 100 routes compiles, beside the same with axum: half an hour, quiet machine
	@scripts/compile-time.sh

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

# Runs a plan; the record goes to bench/results, and an existing one is continued. A shorter form has a record of its own.
# A record is of one build: status 2 says that today's is of another one, among other things.
bench_run = target/release/highwater bench run bench/plans/$(1).toml --resume \
  --out bench/results/$$(date +%F)-$(1)$(if $(findstring --quick,$(2)),-quick)$(RECORD:%=-%).json $(or $(2),$(BENCH)) \
  || (status=$$?; [ $$status -ne 2 ] || echo "make: for another record of the same day: make $@ RECORD=NAME" >&2; \
  exit $$status)

.PHONY: bench-build
bench-build:
	cargo build --release --locked -p highwater-cli
	@mkdir -p bench/results

.PHONY: bench
bench: bench-build ## Measure latency and cost of our own server, five minutes; BENCH='--rounds 2' for less
	bench/build.sh highwater
	$(call bench_run,core)

.PHONY: bench-peers
bench-peers: bench-build ## Measure against every peer, a quarter of an hour; docs/benchmarks.md
	bench/build.sh
	$(call bench_run,framework)

.PHONY: bench-axum
bench-axum: bench-build ## Measure an axum application under axum::serve and under highwater::serve, five minutes
	cargo build --release --locked -p highwater-example-axum --bin highwater-example-axum --example before
	$(call bench_run,axum)

.PHONY: bench-ingest
bench-ingest: bench-build ## Measure POST /e at each level of acknowledgement, and how many records one core batches; ten minutes
	cargo build --release --locked -p highwater-ingest -p highwater-arena
	bench/build.sh axum ntex may
	cargo bench --locked -p highwater-batcher
	$(call bench_run,ingest,$(INGEST))

.PHONY: bench-search
bench-search: bench-build ## Measure searches beside a handler that sends the same bytes, two minutes
	cargo build --release --locked -p highwater-search --example equal_bodies
	$(call bench_run,search)

.PHONY: bench-batcher
bench-batcher: bench-build ## Measure how many records a core batches, every one checked, one minute
	bench/build.sh batcher
	$(call bench_run,batcher)

.PHONY: bench-diagnostics
bench-diagnostics: bench-build ## Measure what metrics, large heads and a container's network cost, and where the time of a request goes; ten minutes, as root
	cargo build --release --locked -p highwater-arena
	bench/build.sh floor
	$(call bench_run,metrics)
	$(call bench_run,heads)
	$(call bench_run,split)
	$(as_root) $(call bench_run,bridge)

.PHONY: bench-history
bench-history: bench-build ## Measure the engine beside axum and the bare loops, for the history in the book, three minutes
	bench/build.sh highwater floor axum
	$(call bench_run,history)

.PHONY: bench-protocols
bench-protocols: bench-build ## Measure TLS, handshakes, HTTP/2 and WebSocket beside axum, libh2o and uWebSockets, ten minutes
	bench/build.sh highwater floor axum h2o uws
	$(call bench_run,protocols)

.PHONY: bench-resident
bench-resident: bench-build ## Measure the memory of ten thousand connections over HTTP/2, WebSocket and TLS, beside axum, nine minutes
	bench/build.sh highwater axum
	$(call bench_run,resident)

.PHONY: bench-web
bench-web: bench-build ## Measure compression, files, uploads, a rate limit, five layers and JSON beside axum, actix-web and nginx, ten minutes
	bench/build.sh highwater axum-web actix nginx web
	$(call bench_run,web)

.PHONY: bench-todos
bench-todos: bench-build ## Measure lists and durable writes of the Todo service, four minutes
	cargo build --release --locked -p highwater-todos -p highwater-arena
	bench/build.sh gin-todos
	$(call bench_run,todos)

.PHONY: bench-todos-full
bench-todos-full: bench-build ## Measure reads of the full Todo service through nginx and directly, with the CPU use of each process; seven minutes
	cargo build --release --locked -p highwater-todos
	bench/build.sh gin-todos autocannon
	$(call bench_run,todos-full)

.PHONY: bench-load
bench-load: bench-build ## Measure highwater load beside wrk and wrk2, one core each, seven minutes; LOAD='--rounds 2' for less
	bench/build.sh floor wrk wrk2
	cargo build --release --locked -p highwater-arena
	$(call bench_run,load,$(LOAD))

.PHONY: bench-all
bench-all: bench-build ## Run every plan but recut, which needs an old build, in about an hour; plans with a [quick] form run that first, later runs on the same day resume
	bench/build.sh
	bench/build.sh gin-todos wrk2 autocannon batcher
	cargo build --release --locked -p highwater-ingest -p highwater-todos -p highwater-arena
	cargo build --release --locked -p highwater-search --example equal_bodies
	cargo build --release --locked -p highwater-batcher --features kafka --example kafka
	cargo build --release --locked -p highwater-example-axum --bin highwater-example-axum --example before
	@status=0; for plan in $$(basename --suffix=.toml bench/plans/*.toml | grep -vx recut); do \
	  echo "== $$plan"; \
	  if grep --quiet '^\[quick\]' bench/plans/$$plan.toml && [ ! -e bench/results/$$(date +%F)-$$plan$(RECORD:%=-%).json ]; \
	  then $(call bench_run,$$plan,--quick); \
	  else $(call bench_run,$$plan); fi || status=1; done; exit $$status

.PHONY: load-thousand
load-thousand: ## Is a server that answers ever reported as dead? A thousand overloads beside a busy process, a quarter of an hour; RUNS=50 for less
	cargo build --profile fast --locked -p highwater-cli -p highwater-arena
	scripts/load-thousand.sh

.PHONY: autobahn
autobahn: ## Run Autobahn's cases for WebSocket servers, 216 of compression among them, over io_uring and epoll; downloads kosoku once
	cargo build --profile fast --locked -p highwater-arena
	scripts/autobahn.sh

.PHONY: bench-selftest
bench-selftest: ## Check that the harness finds a real difference of 300 ns, and none where there is none; two minutes, quiet machine
	cargo build --release --locked -p highwater-cli --examples
	cargo test --release --locked -p highwater-cli --test bench -- --ignored --nocapture --exact a_slowed_handler_is_found

# The records of bench/evidence as a database.
.PHONY: records
records:
	cargo build --profile fast --locked -p highwater-cli
	target/fast/highwater bench export --db target/records.sqlite --sql book/tables.sql bench/evidence/*.json

.PHONY: readme
readme: records ## Write the figures, tables and charts of README.md, docs and book anew, from the records of bench/evidence
	target/fast/highwater book fill README.md docs book --db target/records.sqlite

.PHONY: site
site: ## Build README, docs and the book as one static site with search, into target/site/html
	@scripts/site.sh

.PHONY: book
book: records ## Build the book of book/ from the records of bench/evidence into target/book
	target/fast/highwater book build book --db target/records.sqlite --out target/book
	@echo "target/book/index.html"

.PHONY: bench-kafka
bench-kafka: bench-build ## Measure the Kafka sink and the gateway beside Kafka's own producer test, on one broker, five minutes
	cargo build --release --locked -p highwater-batcher --features kafka --example kafka
	cargo build --release --locked -p highwater-ingest
	$(call bench_run,kafka,$(KAFKA))

.PHONY: overload-build
overload-build:
	cargo build --release --locked -p highwater-arena -p highwater-cli
	@mkdir -p bench/results

.PHONY: stress
stress: overload-build ## Measure goodput at up to ten times the capacity, for each way to refuse: forty minutes, as root; OVERLOAD=--quick for three
	$(as_root) $(call bench_run,stress,$(OVERLOAD))

# A key whose signatures cost the server much and its clients nothing; see the plan.
bench/results/rsa-4096.pem:
	@mkdir -p bench/results
	openssl req -x509 -newkey rsa:4096 -nodes -days 3650 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
	  -keyout bench/results/rsa-4096.key -out $@

.PHONY: stress-protocols
stress-protocols: overload-build bench/results/rsa-4096.pem ## Measure a flood of TLS handshakes, and HTTP/2 and TLS at up to ten times the capacity: a quarter of an hour, as root; OVERLOAD=--quick for one minute
	$(as_root) $(call bench_run,stress-protocols,$(OVERLOAD))

.PHONY: overhead
overhead: overload-build ## Measure the cost of each way to refuse while nothing is refused: ten minutes, as root; OVERLOAD=--quick for two
	$(as_root) $(call bench_run,overhead,$(OVERLOAD))

.PHONY: adaptive-bench
adaptive-bench: overload-build ## Measure how soon each limiter finds its limit: a quarter of an hour, as root; OVERLOAD=--quick for two minutes
	$(as_root) $(call bench_run,adaptive,$(OVERLOAD))

.PHONY: scaling-bench
scaling-bench: overload-build ## Measure when the server asks to be scaled out: a quarter of an hour, as root; OVERLOAD=--quick for three minutes
	$(as_root) $(call bench_run,scaling,$(OVERLOAD))

.PHONY: patience
patience: overload-build ## Send bursts and waiting requests, which must not be refused: two and a half hours; OVERLOAD=--quick for four minutes
	$(call bench_run,patience,$(OVERLOAD))

.PHONY: onset
onset: overload-build ## Measure the first five seconds of an overload: six minutes, as root; OVERLOAD=--quick for one
	$(as_root) $(call bench_run,onset,$(OVERLOAD))

.PHONY: fairness
fairness: overload-build ## Measure what a hundred clients lose beside one that asks for everything: twenty minutes, as root; OVERLOAD=--quick for four
	$(as_root) $(call bench_run,fairness,$(OVERLOAD))

.PHONY: proxy
proxy: overload-build ## Measure goodput behind nginx and HAProxy, at up to ten times the capacity: forty minutes; OVERLOAD=--quick for four
	@scripts/test-deps.sh
	$(call bench_run,proxy,$(OVERLOAD))

.PHONY: refusal-kept
refusal-kept: overload-build ## Measure the cost of a 503 on a connection that stays open: one minute, as root
	$(as_root) $(call bench_run,refusal-kept,$(OVERLOAD))

.PHONY: sim-mutations
sim-mutations: ## Revert one fix after another, and report the seed of the simulator that detects it
	@scripts/sim-mutations.sh $(SIM_SEEDS)

.PHONY: sim
sim: ## Simulate SIM_SEEDS (10000) servers, networks and faults, each decided by one seed
	cargo run --profile fast --locked -p highwater-cli -- sim --seeds $(SIM_SEEDS)

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZ_SECONDS (60); installs a nightly compiler and cargo-fuzz
	@NIGHTLY=$(NIGHTLY) scripts/fuzz.sh $(FUZZ_SECONDS)

.PHONY: miri
miri: ## Run the core's tests under Miri, which finds undefined behaviour; installs it
	rustup toolchain install $(NIGHTLY) --profile minimal --component miri
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=8 cargo +$(NIGHTLY) miri test --locked -p highwater-core

.PHONY: package
package: ## All of `cargo publish` but the upload: package each published crate, and build it from its package
	cargo publish --workspace --dry-run --locked

.PHONY: deny
deny: ## Check dependencies: licences, advisories, sources; installs cargo-deny
	cargo deny --version 2>/dev/null || cargo install --locked cargo-deny
	cargo deny --all-features check
