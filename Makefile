# Highwater's targets. `make help` prints every line below that has a `##`.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# How much of each; override on the command line: make fuzz FUZZ_SECONDS=600
FUZZ_SECONDS ?= 60
SIM_SEEDS ?= 10000
TORTURE_ROUNDS ?= 100
# Further flags for the overload experiments: make stress OVERLOAD=--quick
OVERLOAD ?=
# Flags for the axum comparison: make bench-axum AXUM='--rounds 3'
AXUM ?=
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

.PHONY: todos
todos: ## Build the Todo service, start it with everything embedded, print URLs and commands with a token
	cargo build --release --locked -p highwater-todos
	@target=$${CARGO_TARGET_DIR:-target}; exec "$$target/release/highwater-todos" --demo \
	  --listen "$${LISTEN:-127.0.0.1:8080}" --metrics "$${METRICS:-127.0.0.1:9090}" --data "$${DATA:-target/run/todos}"

.PHONY: torture
torture: ## Kill the Todo service with -9 TORTURE_ROUNDS (100) times while clients write, and look for what is lost
	TORTURE_ROUNDS=$(TORTURE_ROUNDS) cargo test --locked -p highwater-todos --test kill

.PHONY: todos-full
todos-full: ## Start the Todo service with Postgres, Redis, Kafka, two instances, a worker and nginx; print the URLs
	@scripts/todos-full.sh

.PHONY: test
test: ## Install what the tests need, then run all of them: format, lints, tests, docs, simulation
	@scripts/test.sh

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

.PHONY: bench
bench: ## Measure against the bare loops and axum, a few minutes; records nothing
	bench/build.sh floor axum
	cargo build --release --locked -p highwater-arena
	bench/run.py --servers floor-uring,floor-epoll,highwater,highwater-epoll,axum --rounds 5

.PHONY: bench-peers
bench-peers: ## Measure against every peer, about ten minutes; the record goes to bench/evidence
	bench/build.sh
	cargo build --release --locked -p highwater-arena
	bench/run.py --name peers

.PHONY: bench-axum
bench-axum: ## Measure an axum application under axum::serve and under highwater::serve, five minutes; AXUM='--record FILE'
	bench/build.sh floor
	cargo build --release --locked -p highwater-example-axum --bin highwater-example-axum --example before
	bench/axum.py $(AXUM)

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
