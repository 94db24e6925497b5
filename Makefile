# Highwater's targets. `make help` prints every line below that has a `##`.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# How much of each; override on the command line: make fuzz FUZZ_SECONDS=600
FUZZ_SECONDS ?= 60
SIM_SEEDS ?= 10000
TORTURE_ROUNDS ?= 100
# Further flags for the overload experiments: make stress OVERLOAD=--quick
OVERLOAD ?=
# Flags for the plans: make bench BENCH='--rounds 2 --only one-user'
BENCH ?=
# Flags for the comparison with Kafka's producer test: make bench-kafka KAFKA='--rounds 3'
KAFKA ?=
# Flags for the plan of the ingest gateway: make bench-ingest INGEST='--rounds 15'
INGEST ?=
# Flags for the comparison of load generators: make bench-load LOAD='--rounds 3 --servers arena'
LOAD ?=
# They make network namespaces, which only root may do.
as_root = $(if $(filter 0,$(shell id -u)),,sudo)
# Fuzzing and Miri need a nightly compiler; everything else builds with the stable one.
NIGHTLY ?= nightly

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

.PHONY: torture
torture: ## Kill the gateway, Kafka and the Todo service under load, TORTURE_ROUNDS times (100), and look for what was acknowledged
	TORTURE_ROUNDS=$(TORTURE_ROUNDS) cargo test --locked -p highwater-ingest --test torture --test kafka -- --nocapture torture
	TORTURE_ROUNDS=$(TORTURE_ROUNDS) cargo test --locked -p highwater-todos --test kill

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

# Runs a plan; the record goes to bench/results, and is gone on with if it is there.
bench_run = target/release/highwater bench run bench/plans/$(1).toml --resume --out bench/results/$$(date +%F)-$(1).json $(or $(2),$(BENCH))

.PHONY: bench-build
bench-build:
	cargo build --release --locked -p highwater-cli
	@mkdir -p bench/results

.PHONY: bench
bench: bench-build ## Latency and cost of our own server, five minutes; BENCH='--rounds 2' for less
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
bench-ingest: bench-build ## Measure POST /e at each level of acknowledgement, and what one core batches; ten minutes
	cargo build --release --locked -p highwater-ingest -p highwater-arena
	cargo bench --locked -p highwater-batcher
	$(call bench_run,ingest,$(INGEST))

.PHONY: bench-todos
bench-todos: bench-build ## Measure lists and durable writes of the Todo service, four minutes
	cargo build --release --locked -p highwater-todos -p highwater-arena
	$(call bench_run,todos)

.PHONY: bench-load
bench-load: bench-build ## Measure highwater load beside wrk and wrk2, on one core each, five minutes; LOAD='--rounds 2' for less
	bench/build.sh floor wrk wrk2
	cargo build --release --locked -p highwater-arena
	bench/load.py --record bench/results/$$(date +%F)-load.json $(LOAD)

.PHONY: bench-all
bench-all: bench-build ## Run every plan of bench/plans, about an hour; a peer that is not built is void
	bench/build.sh highwater floor
	cargo build --release --locked -p highwater-ingest -p highwater-todos -p highwater-arena
	cargo build --release --locked -p highwater-example-axum --bin highwater-example-axum --example before
	@status=0; for plan in bench/plans/*.toml; do plan=$$(basename $$plan .toml); \
	  echo "== $$plan"; $(call bench_run,$$plan) || status=1; done; exit $$status

.PHONY: bench-selftest
bench-selftest: ## Does the harness find 300 ns that are there, and nothing where nothing is? Two minutes, quiet machine
	cargo build --release --locked -p highwater-cli --examples
	cargo test --release --locked -p highwater-cli --test bench -- --ignored --nocapture --exact a_slowed_handler_is_found

.PHONY: book
book: ## Build the book of book/ from the records of bench/evidence into target/book
	cargo build --profile fast --locked -p highwater-cli
	target/fast/highwater bench export --db target/records.sqlite bench/evidence/*.json
	target/fast/highwater book build book --db target/records.sqlite --out target/book
	@echo "target/book/index.html"

.PHONY: bench-kafka
bench-kafka: ## Measure the Kafka sink against Kafka's own producer test, on the same broker, three minutes
	cargo build --release --locked -p highwater-batcher --features kafka --example kafka
	cargo build --release --locked -p highwater-ingest -p highwater-cli
	bench/kafka.py $(KAFKA)

.PHONY: stress
stress: ## Goodput at up to ten times capacity, for each way to refuse: forty minutes, as root; OVERLOAD=--quick for two minutes
	cargo build --release --locked -p highwater-arena -p highwater-cli
	$(as_root) bench/overload/stress.py $(if $(OVERLOAD),$(OVERLOAD),--name stress)

.PHONY: adaptive-bench
adaptive-bench: ## How soon each limiter finds its limit: a quarter of an hour, as root; OVERLOAD=--quick for two minutes
	cargo build --release --locked -p highwater-arena -p highwater-cli
	$(as_root) bench/overload/adaptive.py $(if $(OVERLOAD),$(OVERLOAD),--name adaptive)

.PHONY: scaling-bench
scaling-bench: ## When the server asks to be scaled out: a quarter of an hour, as root; OVERLOAD=--quick for two minutes
	cargo build --release --locked -p highwater-arena -p highwater-cli
	$(as_root) bench/overload/scaling.py $(if $(OVERLOAD),$(OVERLOAD),--name scaling)

.PHONY: patience
patience: ## Bursts and waiting, which must not be refused: three hours; OVERLOAD=--quick for four minutes
	cargo build --release --locked -p highwater-arena -p highwater-cli
	bench/overload/patience.py $(if $(OVERLOAD),$(OVERLOAD),--name patience)

.PHONY: sim-mutations
sim-mutations: ## Revert one fix after the other, and say which seed of the simulator finds it
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

.PHONY: deny
deny: ## Check dependencies: licences, advisories, sources; installs cargo-deny
	cargo deny --version 2>/dev/null || cargo install --locked cargo-deny
	cargo deny --all-features check
