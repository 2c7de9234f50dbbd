# make run            builds Holm, makes the base image of sandboxes, and starts the server
# make hub            makes all images that the project has recipes for
# make test           runs everything that must pass before a change goes in
# make test-fresh     the same in a clean clone with empty caches, as on a machine that never ran it
# make test-debian    runs the tests of instances in a virtual machine, on Debian's own kernel
# make bench NAME=api measures, compares with alternatives; also sandbox, gateway, density, wakes,
#                     jobs, metrics, serve, build, storage, egress, models

SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := help
export PATH := $(HOME)/.cargo/bin:$(PATH)
# The recipes below look here, whatever the user has set for other projects.
export CARGO_TARGET_DIR := $(CURDIR)/target

DATA ?= data
LISTEN ?= 127.0.0.1:8700
NAME ?= api
SUITE ?= bookworm

BUILD_NEEDS := cc=gcc ld=binutils make=make
NODE_NEEDS := nft=nftables mkfs.ext4=e2fsprogs mkfs.xfs=xfsprogs
IMAGE_NEEDS := mmdebstrap=mmdebstrap unshare=util-linux
TEST_NEEDS := $(BUILD_NEEDS) $(NODE_NEEDS) $(IMAGE_NEEDS) postgres=postgresql python3-venv=python3-venv node=nodejs npm=npm chromium=chromium busybox=busybox-static ip=iproute2 runc=runc pebble=pebble skopeo=skopeo podman=podman buildah=buildah go=golang-go jlink=default-jdk-headless
BENCH_NEEDS_api := postgres=postgresql etcd=etcd-server
BENCH_NEEDS_sandbox := $(NODE_NEEDS) $(IMAGE_NEEDS) runc=runc bwrap=bubblewrap podman=podman
BENCH_NEEDS_gateway := $(NODE_NEEDS) $(IMAGE_NEEDS) nginx=nginx-light nsenter=util-linux
BENCH_NEEDS_density := $(NODE_NEEDS) $(IMAGE_NEEDS)
BENCH_NEEDS_serve := $(NODE_NEEDS) $(IMAGE_NEEDS) nginx=nginx-light nsenter=util-linux podman=podman runc=runc
BENCH_NEEDS_wakes := $(BENCH_NEEDS_density)
BENCH_NEEDS_jobs := $(NODE_NEEDS) postgres=postgresql busybox=busybox-static runc=runc bwrap=bubblewrap podman=podman parallel=parallel python3-venv=python3-venv
BENCH_NEEDS_build := $(NODE_NEEDS) $(IMAGE_NEEDS) setpriv=util-linux pkill=procps busybox=busybox-static buildah=buildah
BENCH_NEEDS_storage := $(NODE_NEEDS) $(IMAGE_NEEDS) python3=python3 python3-venv=python3-venv mkfs.xfs=xfsprogs ip=iproute2 ganesha.nfsd=nfs-ganesha-vfs rpcbind=rpcbind nfs-ls=libnfs-utils
BENCH_NEEDS_models := $(NODE_NEEDS) $(IMAGE_NEEDS) nginx=nginx-light setpriv=util-linux python3-venv=python3-venv
BENCH_NEEDS_egress := $(NODE_NEEDS) $(IMAGE_NEEDS) setpriv=util-linux ip=iproute2 python3-venv=python3-venv
BENCH_NEEDS_metrics := postgres=postgresql python3-venv=python3-venv

section = @printf '\n== %s\n' "$(1)"

.PHONY: help run build server-program guest-program hub hub-test test test-fresh test-debian bench

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

build:
	$(call section,What the build needs)
	@tools/need $(BUILD_NEEDS) $(NODE_NEEDS) $(IMAGE_NEEDS)
	@tools/need-rust
	$(call section,Build (some minutes the first time))
	@$(MAKE) --no-print-directory --jobs=$$(nproc) server-program guest-program
	@install -m 755 target/holm-guest target/release/holm-guest

# Both at once: much of either is work for one core only. Cargo gets its jobs from make.
server-program:
	+@cargo build --release --locked --quiet --package holm

guest-program:
	+@tools/guest >/dev/null

run: build
	$(call section,Image of sandboxes (about a minute the first time))
	@target/release/holm image make holm/base --data "$(DATA)" || \
		echo "Going on without it: no sandbox starts until 'make hub' or 'holm image import' brings an image."
	$(call section,Start (data in $(DATA); Ctrl-C stops))
	@exec target/release/holm up --data "$(DATA)" --listen "$(LISTEN)"

hub: build
	$(call section,Images (some minutes the first time))
	@target/release/holm image make --all --data "$(DATA)"

hub-test: build
	$(call section,Make all images and use them (needs the network))
	@cargo nextest run --release --package images --run-ignored only --no-capture

test:
	$(call section,What the tests need)
	@tools/need $(TEST_NEEDS)
	@tools/need-rust fmt clippy
	$(call section,Format)
	@cargo fmt --all --check
	$(call section,Licences and advisories)
	@tools/check-dependencies
	$(call section,Unused dependencies)
	@cargo xtask unused
	$(call section,Lints)
	@cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	$(call section,Tests)
	@tools/run-tests
	$(call section,Published clients)
	@if [ -x clients/run ]; then clients/run; else echo "no client tests are there"; fi
	$(call section,All tests passed)

test-fresh:
	@tools/test-fresh

# SUITE=trixie for Debian 13.
test-debian:
	@tools/test-debian $(SUITE)

bench:
	$(call section,What the measurement needs)
	@tools/need $(BUILD_NEEDS) $(BENCH_NEEDS_$(NAME))
	@tools/need-rust
	$(call section,Measure $(NAME))
	@cargo run --release --locked --quiet --package bench -- "$(NAME)"
