# `make help` lists the targets; each says what it does after `##`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
# rustup's own place first: a distribution's cargo may be too old to read Cargo.toml.
export PATH := $(HOME)/.cargo/bin:$(PATH)

CTXBENCH := target/release/ctxbench
# More options for the command: make bench ARGS='--backend sqlite --budget 60'
ARGS ?=

.PHONY: help setup build bench evidence report test check lint conform microbench load peers python-daemons minio mcp sdk-packages postgres embeddings corpora s3 simulate fuzz hosts model model-files programs growth scale speed calibrate reproduce aa fault release-docs results site static packages clean

help: ## List the targets
	@echo 'ctxbench: how should an LLM agent hold its context as files?'
	@echo
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 20
	@echo
	@echo "More options for a command: make bench ARGS='--backend sqlite --budget 60'"

setup: ## Install missing packages, or print the command that installs them
	@scripts/setup build tools

build: setup ## Build target/release/ctxbench
	@cargo build --release --locked -p harness

bench: build ## Run the default suite (seven to eight minutes), print the answer and the report's path
	@$(CTXBENCH) run $(ARGS)

evidence: build ## Collect the data that every policy and most claims need; at most 90 minutes (make evidence ARGS=--plan)
	@case ' $(ARGS) ' in *' --plan '*) ;; *) for part in corpora embeddings; do \
		scripts/$$part || echo "evidence: make $$part failed; what needs it is skipped" >&2; done ;; esac
	@scripts/evidence $(ARGS)

report: build ## Write the newest run's report again and print the answer and its path
	@$(CTXBENCH) report $(ARGS)

test: setup ## All tests, over real mounts where the kernel allows them
	@cargo test --workspace --locked $(ARGS)

check: lint ## What `make lint` does, and the tests of the repository itself
	@cargo test --workspace --locked --quiet --test repository

lint: setup ## Format, lints, docs and licences, warnings as errors
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --locked -- -D warnings
	@RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet
	@if command -v cargo-deny >/dev/null 2>&1; then cargo deny check; \
	else echo 'check: advisories were not asked: cargo-deny is not installed (cargo install cargo-deny)'; fi

conform: build ## Conformance table, pjdfstest and fsx (installs both under target/tools)
	@scripts/conform $(ARGS)

microbench: setup ## Measure the harness's cost per call, and its parts without FUSE, by criterion (three minutes)
	@cargo bench --locked -p harness --bench micro -- $(ARGS)

load: build ## Eight processes on one mount (four minutes), then 100,000 files on one mount (eight minutes)
	@$(CTXBENCH) run --suite load $(ARGS)
	@$(CTXBENCH) run --suite many-files $(ARGS)

peers: build ## Install third-party file systems to measure beside ours
	@scripts/peers

python-daemons: ## Install the packages of our two Python daemons into target/peers (the tests use them)
	@scripts/peers python

minio: ## Build MinIO into target/minio (three minutes, once; needs Go)
	@scripts/minio

model: ## Build llama-server into target/model, with SmolLM2-135M (five minutes, once; x86-64 with AVX2)
	@scripts/model

model-files: build model ## Measure time, errors and cost of files that a language model generates (five minutes)
	@$(CTXBENCH) run --suite model-files $(ARGS)

mcp: ## Install the official Python SDK of MCP into target/tools/mcp (the tests use it)
	@scripts/mcp

sdk-packages: ## Install the packages of the SDKs' adapters into target/tools/sdk (the tests use them; a minute, once)
	@scripts/sdk-packages

postgres: ## Install Debian's PostgreSQL, which the tests of `view` start (seconds)
	@scripts/postgres

embeddings: ## Install a sentence model into target/embeddings (79 MB to download, seconds): recall by meaning
	@scripts/embeddings

corpora: ## Install questions with labelled evidence into target/corpora (7 MB to download): the suite recall
	@scripts/corpora

s3: build ## Measure the cost of s3 beyond bare requests (ten minutes)
	@$(CTXBENCH) run --suite bucket $(ARGS)

simulate: setup ## 1,000,000 seeded histories of the S3 protocol (a quarter of an hour)
	@CTXBENCH_HISTORIES=$${CTXBENCH_HISTORIES:-1000000} cargo test --release --locked -p s3 --test simulation no_history -- --nocapture

fuzz: setup ## Ten minutes of mutated input for each parser of foreign bytes, four at a time (half an hour)
	@CTXBENCH_FUZZ_SECONDS=$${CTXBENCH_FUZZ_SECONDS:-600} cargo test --release --locked -p harness --test fuzz -- --nocapture

hosts: build ## Measure delays and lost updates of two hosts on one memory; ours and third-party
	@$(CTXBENCH) run --suite hosts $(ARGS)

programs: build ## Measure the programs that agents' shells run: git, cp, tar, npm, pip, cargo, editors, SQLite (ten minutes)
	@$(CTXBENCH) run --suite programs $(ARGS)

growth: build ## Measure how times grow with the number of files, agents and hosts, and with the size of a database, and fit curves (under two hours; a million files need 20 GB of disk, databases 40 GB)
	@$(CTXBENCH) run --suite growth $(ARGS)
	@if [ "$$(df --output=avail -k . | tail -n 1)" -gt 20000000 ]; then $(CTXBENCH) run --suite million-files $(ARGS); \
	else echo 'growth: the suite million-files was left out: it needs 20 GB of disk'; fi
	@if [ "$$(df --output=avail -k . | tail -n 1)" -gt 45000000 ]; then $(CTXBENCH) run --suite database $(ARGS); \
	else echo 'growth: the suite database was left out: it needs 40 GB of disk'; fi

scale: build ## Write the report of a run of a million calls, in at most 5 s and 500 MB
	@CTXBENCH_RELEASE=$$PWD/$(CTXBENCH) cargo test --locked -p harness --test end_to_end a_run_of_a_million_calls -- --ignored --nocapture

speed: build embeddings corpora ## Test the time limits of views, recalls and tools over MCP, on a quiet machine
	@CTXBENCH_RELEASE=$$PWD/$(CTXBENCH) scripts/speed

calibrate: build ## Compare the harness with fio on this machine (half a minute)
	@scripts/setup fio
	@$(CTXBENCH) run --suite calibrate $(ARGS)

reproduce: build ## Run the default suite three times, once under load, and report contradictions (15 minutes)
	@$(CTXBENCH) reproduce --runs 3 --load $(ARGS)

aa: build ## Count false verdicts on identical arms, and planted slowdowns found, in twenty short seeded runs (fifteen minutes)
	@$(CTXBENCH) reproduce --runs 20 --backend memory --state hot --budget 40 --workload micro/read-1k --workload micro/stat --workload micro/write-1k --workload micro/create-1k --workload micro/append --workload micro/rename $(ARGS)

fault: build ## Inject every fault under each backend, and kill stores and cut their power 1,000 times each (half an hour; root for some)
	@$(CTXBENCH) fault --crash-points 1000 $(ARGS)

release-docs: build ## Put the newest run's answer into the README, and its short report into docs/example
	@scripts/release-docs $(ARGS)

results: build ## Write the pages of docs/results from runs: make results ARGS='results/…'
	@scripts/results $(ARGS)

site: build ## Build the documents and the example report into a static site, target/site/html (installs mdBook once)
	@scripts/site

static: setup ## Build a static binary, target/x86_64-unknown-linux-gnu/release/ctxbench (x86-64 only)
	@RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked -p harness --target x86_64-unknown-linux-gnu

packages: setup ## Build tarball, .deb, wheel, npm packages and image, and use each in a clean place (root); for arm64, too: ARGS='x86_64 aarch64'
	@scripts/packages $(ARGS)

clean: ## Remove build outputs; runs under results/ stay
	@cargo clean
