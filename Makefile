# Outbill. `make help` lists what there is.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

CACHE := $(or $(OUTBILL_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/outbill)
# Outside the checkout, so that a fresh clone on the same machine need not build everything again.
export CARGO_TARGET_DIR ?= $(CACHE)/target

.PHONY: help demo test test-unit check format bench servers-stop

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

demo: ## the main job in ten seconds, with nothing installed: a SQLite shop, the real relay, a sink that misbehaves
	@cargo run --quiet -- demo

test: ## everything, on private MariaDB, MySQL and RabbitMQ that it installs, starts and stops
	@scripts/with-servers cargo test

test-unit: ## what needs no server
	@cargo test --lib --test tidy

check: ## format, lints and docs, as CI checks them
	@cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items --quiet

bench: ## bills per second beside a bare publisher, on private servers
	@scripts/with-servers cargo bench --bench drain

format: ## rewrite the sources in the project's format
	@cargo fmt
