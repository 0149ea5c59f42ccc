# etcdinit: what developers type. `make` lists the targets.
SHELL := /bin/bash
GO ?= go
DOCKER ?= docker
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
IMAGE ?= etcdinit:$(VERSION)
BUILDER ?= golang:1.26
FUZZTIME ?= 10s
PICTURES ?= docs
# What the program does not use of its libraries stays out of the binary (3 % of it).
TAGS := grpcnotrace,nethttpomithttp2,urfave_cli_no_docs
export VERSION

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## bin/etcdinit for this machine, static and stripped
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags "-s -w -X main.version=$(VERSION) -X main.revision=$(REVISION)" -o bin/etcdinit ./cmd/etcdinit

.PHONY: test
test: ## the unit tests
	$(GO) test ./...

.PHONY: lint
lint: ## golangci-lint, go mod tidy, shellcheck
	bash .ci/run lint

.PHONY: race
race: ## the unit tests under the race detector
	bash .ci/run race

.PHONY: e2e
e2e: ## end to end: real etcd, DNS servers and network namespaces (root, Linux)
	bash .ci/run prepare tools e2e

.PHONY: bench
bench: ## speed and memory against a floor, etcdutl and stock bootstrap; Linux, root, tools/build etcd-3.6 etcd-3.7
	ETCDINIT_TOOLS_DIR="$${ETCDINIT_TOOLS_DIR:-$(CURDIR)/.cache/tools}" \
		$(GO) test -tags e2e -count=1 -timeout 48m -run '^$$' -bench . -benchtime 1x ./e2e/bench/...

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s)
	@set -euo pipefail; n=0; log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	while IFS=: read -r file target; do \
		echo "fuzz: $$target in $$(dirname "$$file")"; \
		one() { $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")" 2>&1 | tee "$$log"; }; \
		if ! one; then \
			if grep -q 'Failing input' "$$log" || ! grep -q '^ *context deadline exceeded$$' "$$log"; then exit 1; fi; \
			echo "fuzz: $$target again: the end of its time came in the middle of a run, which the Go command takes for a failure"; \
			one; \
		fi; n=$$((n + 1)); \
	done < <(git ls-files -co --exclude-standard '*_test.go' | xargs grep -oE '^func Fuzz[A-Za-z0-9_]*' | sed 's/func //' | sort); \
	[ $$n -gt 0 ] || { echo "fuzz: no fuzz target found" >&2; exit 1; }; \
	echo "ci: $$n fuzz targets, $(FUZZTIME) each"

.PHONY: demo
demo: ## a three-member cluster on loopback
	$(GO) run ./cmd/etcdinit-demo

.PHONY: pictures
pictures: ## the animated pictures of README.md, from the demo; PICTURES names another folder than docs
	$(GO) build -o bin/etcdinit-demo ./cmd/etcdinit-demo
	cd bin && PATH=$$PWD:$$PATH ../tools/picture etcdinit-demo >$(abspath $(PICTURES))/boot.svg
	cd bin && PATH=$$PWD:$$PATH ../tools/picture 'etcdinit-demo --lose-disk' >$(abspath $(PICTURES))/lost-disk.svg

.PHONY: image
image: ## the container image IMAGE, built in BUILDER
	DOCKER_BUILDKIT=0 $(DOCKER) build --build-arg BUILDER=$(BUILDER) --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) -t $(IMAGE) .

.PHONY: release
release: ## archives, checksums and bill of materials in dist/
	tools/release

.PHONY: packages
packages: ## a .deb and an .rpm in dist/packages
	tools/packages

.PHONY: dist
dist: ## all that a release has, in dist/
	tools/release
	for arch in amd64 arm64; do GOARCH=$$arch tools/packages dist; done
	tools/chart
	tools/formulas
	cd dist && sha256sum -- $$(ls | grep -v SHA256SUMS) >SHA256SUMS

.PHONY: ci
ci: ## every default check of .ci/run
	bash .ci/run

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist .cache
