# The commands for people and for CI. `make` without a target lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

OUT     := $(CURDIR)/out
BIN     := $(OUT)/bin
VERSION ?= 0.1.0
# SOURCE is the project's home. IMAGE is the operator's published image: the payload's name adds -payload, wmco-e2e's
# adds -e2e. In a GitHub workflow, both belong to the repository that runs it, so a fork's release installs from the
# fork. KEY signs images: a private key of cosign, or any PEM key. PUSH is a repository to push images to.
SOURCE  ?= https://github.com/$(or $(GITHUB_REPOSITORY),windows-nodes/wmco)
IMAGE   ?= $(if $(GITHUB_REPOSITORY),ghcr.io/$(shell tr A-Z a-z <<<'$(GITHUB_REPOSITORY)'),quay.io/windows-nodes/wmco)
KEY     ?=
PUSH    ?=
REPOSITORY = $(if $(PUSH),$(PUSH),$(IMAGE))
# PLUGIN_URL is the address of the folder from which Krew downloads the plugin's archives.
PLUGIN_URL ?= $(SOURCE)/releases/download/v$(VERSION)
# GOGC=400 gives compilers more memory and saves an eighth of their processor time. GOFLAGS omits debug data, which the
# linker drops anyway. Tests, linters, the lab and the tools use the same flags, without cgo. So Go compiles each
# package once for all of them, and once more for the race detector.
FLAGS := -trimpath -gcflags=all=-dwarf=false
override GOFLAGS := $(filter-out $(FLAGS),$(or $(GOFLAGS),$(shell go env GOFLAGS))) $(FLAGS)
export GOFLAGS
export CGO_ENABLED := 0
LDFLAGS := -s -w -X github.com/windows-nodes/wmco/internal/version.version=$(VERSION)
# HOSTS, MACHINES and FAIL are for the demo. PAYLOAD=real uses out/payload, not stand-ins. ONCE=1 runs it to its end.
HOSTS    ?= 3
MACHINES ?= 0
FAIL    ?=
# CLUSTER=kubernetes runs the demo on a cluster that kubeadm configured, and not on one that looks like OpenShift. "make
# deploy" then installs what such a cluster needs.
CLUSTER  ?= openshift
# NODES is the number of nodes of bench-config, UPGRADES of bench-upgrade. demo-upgrade upgrades to version NEXT.
NODES    ?= 200
UPGRADES ?= 100
NEXT     ?= 0.2.0
ONCE    ?=
PAYLOAD ?=
# With BYITSELF=1, the hosts of demo and bench join by themselves, without SSH servers.
BYITSELF ?=
# With WINE=1, the demo's hosts run Wine. With WMCO_WINE=require, "make test" fails if Wine is missing.
WINE    ?=
export WMCO_WINE
# SUPPLIED is a directory with the programs that can't be built from Go modules: see docs/payload.md. INCOMPLETE=1
# builds images without these programs.
SUPPLIED   ?=
INCOMPLETE ?=

##@ Try it

.PHONY: demo
demo: operator ## Join simulated Windows hosts to a local cluster and watch (CLUSTER=kubernetes, ONCE=1, HOSTS=n, MACHINES=n, FAIL=auth,disk,…, WINE=1, BYITSELF=1)
	$(BIN)/winlab demo --operator $(BIN)/wmco --cluster $(CLUSTER) --hosts $(HOSTS) --machines $(MACHINES) --fail "$(FAIL)" $(if $(ONCE),--once --json $(OUT)/demo.json) $(if $(filter real,$(PAYLOAD)),--payload $(OUT)/payload) $(if $(WINE),--wine) $(if $(BYITSELF),--by-itself)

.PHONY: demo-upgrade
demo-upgrade: operator ## Upgrade simulated nodes with pods on them to the next build, and watch (ONCE=1, HOSTS=n)
	go build -ldflags '$(subst =$(VERSION),=$(NEXT),$(LDFLAGS))' -o $(OUT)/next/wmco ./cmd/wmco
	$(BIN)/winlab demo-upgrade --operator $(BIN)/wmco --next $(OUT)/next/wmco --hosts $(if $(filter file default undefined,$(origin HOSTS)),10,$(HOSTS)) $(if $(ONCE),--once --json $(OUT)/upgrade.json)

.PHONY: bench
bench: operator ## Measure joins: out/bench-join.json (CLUSTER=kubernetes, BYITSELF=1)
	$(BIN)/winlab bench join --operator $(BIN)/wmco --cluster $(CLUSTER) --hosts 50 --json $(OUT)/bench-join.json $(if $(BYITSELF),--by-itself)

.PHONY: bench-upgrade
bench-upgrade: operator ## Measure an upgrade of many nodes, with a rollout budget and with twice this budget: out/bench-upgrade.json (UPGRADES=n)
	$(BIN)/winlab bench upgrade --operator $(BIN)/wmco --hosts $(UPGRADES) --json $(OUT)/bench-upgrade.json

.PHONY: bench-config
bench-config: operator ## Measure how settings reach nodes: out/bench-config.json (NODES=n)
	$(BIN)/winlab bench config --operator $(BIN)/wmco --hosts $(NODES) --json $(OUT)/bench-config.json

# TIME is the duration of a soak test.
TIME ?= 1h

.PHONY: soak
soak: build ## Disrupt nodes for an hour, then check that all have converged and nothing has leaked: out/soak.json (TIME=5m, NODES=n)
	$(BIN)/winlab soak --operator $(BIN)/wmco --time $(TIME) --hosts $(if $(filter file default undefined,$(origin NODES)),50,$(NODES)) --json $(OUT)/soak.json

##@ Build

.PHONY: build
build: operator ## Build operator, daemon (Windows) and lab into out/bin
	GOGC=400 GOOS=windows GOARCH=amd64 go build -ldflags '$(LDFLAGS) -X main.version=$(VERSION)' -o $(BIN)/windows-instance-config-daemon.exe ./cmd/wicd

.PHONY: operator
operator: ## Build operator and lab into out/bin: demo and bench need only these
	@mkdir -p $(BIN)
	GOGC=400 go build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/wmco ./cmd/winlab

.PHONY: operator-windows
operator-windows: # the operator for Windows, which tools/realwindows runs next to a node
	GOOS=windows GOARCH=amd64 go build -ldflags '$(LDFLAGS)' -o $(OUT)/windows-bin/wmco-$(VERSION).exe ./cmd/wmco

.PHONY: plugin
plugin: ## Build kubectl-windows for Linux, macOS and Windows, on amd64 and arm64, into out/plugin, with archives and a manifest for Krew (PLUGIN_URL=where the archives will be)
	go run ./tools/krew --root $(CURDIR) --out $(OUT)/plugin --version $(VERSION) --url "$(PLUGIN_URL)"

.PHONY: wmco-e2e
wmco-e2e: ## Build wmco-e2e, which tests the acceptance list on your cluster, for Linux on amd64 and arm64, into out/e2e
	@mkdir -p $(OUT)/e2e
	for arch in amd64 arm64; do GOOS=linux GOARCH=$$arch go build -ldflags '$(LDFLAGS)' \
	  -o $(OUT)/e2e/wmco-e2e_linux_$$arch ./cmd/wmco-e2e || exit 1; done

.PHONY: payload
payload: ## Cross-build the Windows programs for nodes into out/payload (SUPPLIED=dir adds programs without a Go module; MINORS="1.37 1.36" or all, if API servers are not 1.36)
	go run ./tools/payload --out $(OUT)/payload --version $(VERSION) $(if $(MINORS),--minors "$(MINORS)") $(if $(SUPPLIED),--supplied $(SUPPLIED))

.PHONY: generate
generate: $(BIN)/controller-gen ## Generate CRDs, RBAC, deep copies and the reference pages
	$(BIN)/controller-gen object paths=./api/...
	$(BIN)/controller-gen crd paths=./api/v1alpha1 output:crd:dir=config/crd
	$(BIN)/controller-gen crd paths=./api/bootstrap/... output:crd:dir=config/bootstrap/crd
	$(BIN)/controller-gen rbac:roleName=windows-bootstrap-provider paths=./internal/bootstrap output:rbac:dir=config/bootstrap/rbac
	$(BIN)/controller-gen rbac:roleName=windows-machine-config-operator 'paths={./cmd/wmco/...,./internal/cluster/...,./internal/controller/...,./config}' output:rbac:dir=config/rbac
	$(BIN)/controller-gen rbac:roleName=windows-machine-config-operator-kubernetes paths=./config/kubernetes/rights output:rbac:dir=config/kubernetes/rights
	go run ./tools/generate

##@ Check

# make test runs two lanes: one for the end-to-end tests, the other for linters, compilers and Wine. Exception: if
# Wine's hosts share this machine's network, Wine runs last. The lane that ends first runs conformance and unit tests.
# Large compilations have a low priority (NICE), because the clocks of tests don't wait. Linters run without NICE: with
# NICE, they took 950 s for 200 s of processor time, and delayed their lane. GROUND is built before the first test, so
# the order doesn't change.
GROUND := build controlplane
NICE   := nice -n 19
BESIDE  = $(shell $(BIN)/winlab wine check --namespaces >/dev/null 2>&1 && echo wine)
# Lint includes vet's analyzers. In go test, vet would analyze all dependencies again for each build of a test.
GOTEST := go test -vet=off

.PHONY: test
test: fmt prepare ## All tests: formatting, lint, unit, house rules, end-to-end, and Wine if it is installed
	@rm -f $(OUT)/times
	$(MAKE) --no-print-directory -j2 GROUND= e2e lint compile $(BESIDE) conformance unit
	$(if $(BESIDE),,$(MAKE) --no-print-directory GROUND= wine)
	@.ci/timed

.PHONY: test-all
test-all: ## Tests for a release: test, with the race detector for all packages, 200 Machines at once, and also the tests that have passed before
	$(MAKE) --no-print-directory test RACE=all ONCE_AGAIN=1 WMCO_TEST_ALL=1

# check compares with BASE, or with main if BASE is empty. CHECK=all checks all packages.
export BASE CHECK

.PHONY: check
check: fmt controlplane $(BIN)/golangci-lint ## While you work: formatting, house rules, lint and unit tests of changed packages (BASE=commit, CHECK=all)
	go test -count=1 ./test/house
	.ci/check $(BIN)/golangci-lint

.PHONY: fmt
fmt: ## Check formatting
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

.PHONY: lint
lint: ## Lint code and workflows, and lint packages for Windows again as on Windows
	@$(MAKE) --no-print-directory $(BIN)/golangci-lint $(BIN)/actionlint
	$(BIN)/actionlint -shellcheck= -pyflakes=
	.ci/timed lint $(BIN)/golangci-lint run ./...
	GOOS=windows GOARCH=amd64 .ci/timed "lint for Windows" .ci/once . $(ONWINDOWS) -- $(BIN)/golangci-lint run $(ONWINDOWS)

# ONWINDOWS are the packages with files for Windows only.
ONWINDOWS = ./cmd/wicd/... ./cmd/servicewrapper/... ./internal/daemon/... ./lab/wine/...

.PHONY: controlplane
controlplane: ## Build the local control plane into the user's cache: takes minutes the first time
	go run ./cmd/winlab prepare

.PHONY: prepare
prepare: build ## Also build the programs that only tests run into the user's cache: takes minutes the first time
	GOGC=400 $(BIN)/winlab prepare --tests

# RACE selects the packages that are tested with the race detector: see .ci/packages.
RACE ?= race

.PHONY: compile
compile: # compile unit tests while end-to-end tests wait for their hosts
	CGO_ENABLED=1 GOGC=400 .ci/timed "compiling tests" $(NICE) go list -race -export -deps -test $$(.ci/packages $(RACE)) >/dev/null

.PHONY: unit
unit: $(GROUND) ## House rules and unit tests, with the race detector for packages with goroutines
	.ci/timed "house rules" $(GOTEST) -count=1 -timeout 10m ./test/house
	$(if $(filter all,$(RACE)),,GOGC=400 .ci/timed "unit tests" $(GOTEST) -timeout 20m $$(.ci/packages rest))
	GOGC=400 CGO_ENABLED=1 .ci/timed "unit tests with the race detector" $(GOTEST) -race -timeout 20m $$(.ci/packages $(RACE))

.PHONY: e2e
# -parallel is the number of concurrent tests with their own hosts and operator, besides the tests of two shared stages.
e2e: $(GROUND) ## End-to-end tests: real API server, real operator, simulated hosts
	WMCO_OPERATOR=$(BIN)/wmco .ci/timed "end-to-end tests" $(GOTEST) -count=1 -parallel 3 -timeout 60m ./test/e2e/...

.PHONY: wine
wine: $(GROUND) ## Real Windows programs under Wine: Windows-only tests, join, day 2, update, leave (skipped without Wine)
	@if $(BIN)/winlab wine check; then $(MAKE) --no-print-directory wine-lane; \
	elif [ "$$WMCO_WINE" = require ]; then exit 1; else echo "The Wine lane is left out."; fi

.PHONY: wine-lane
wine-lane:
	GOGC=400 .ci/timed "Wine's template" $(NICE) $(BIN)/winlab wine prepare
	GOOS=windows .ci/timed "Windows-only unit tests" $(GOTEST) -p 1 -count=1 -timeout 10m -exec "$(BIN)/winlab wine run --timeout 8m" \
	  $$(git ls-files '*_windows_test.go' | xargs -n1 dirname | sort -u | sed 's,^,./,')
	.ci/timed "the lab's Wine" $(GOTEST) -count=1 -timeout 10m ./lab/wine
	WMCO_OPERATOR=$(BIN)/wmco .ci/timed "Wine tests" $(GOTEST) -count=1 -timeout 45m ./test/wine

.PHONY: powershell
powershell: ## Parse the user data with a real grammar of PowerShell (needs npm; make test uses another linter)
	cd test/powershell && npm ci --ignore-scripts --no-audit --no-fund && node parse.mjs

# DISCOVERY builds Prometheus without discovery in clouds. conformance also tests the tools that build releases.
DISCOVERY := remove_all_sd

.PHONY: conformance
conformance: ## Compare mirrors with Linux nodes, pull from real registries with containerd's code, push images to a registry, install the chart, fire alerts
	for module in lab/controlplane/podgc test/mirror test/mirror/pull; do ALSO=internal/blueprint/testdata .ci/timed $$module .ci/once $$module ./... -- .ci/module $$module || exit 1; done
	for module in tools/image tools/chart tools/bump tools/olm tools/prometheus; do \
	  TAGS=$(DISCOVERY) ALSO="api cmd config docs internal" .ci/timed $$module .ci/once $$module ./... -- .ci/module $$module || exit 1; done

.PHONY: fuzz
fuzz: ## Fuzz every parser for 20 s
	@for package in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
	  for name in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$package/*_test.go | cut -c6-); do \
	    echo "== $$package $$name"; go test -run '^$$' -fuzz "^$$name$$" -fuzztime 20s ./$$package; done; done

##@ Install

.PHONY: image
image: payload ## Build the images of operator, payload and wmco-e2e in out/image, without a container engine (PUSH=registry/repository, KEY=file, SUPPLIED=dir, INCOMPLETE=1)
	go run -C tools/image . build --root $(CURDIR) --payload $(OUT)/payload --out $(OUT)/image --version $(VERSION) \
	  --revision "$$(git rev-parse HEAD 2>/dev/null || true)" --repository $(REPOSITORY) $(if $(KEY),--key $(abspath $(KEY))) $(if $(INCOMPLETE),--incomplete)
	$(if $(PUSH),go run -C tools/image . push $(PUSH) --from $(OUT)/image --tag v$(VERSION))

.PHONY: bundle
bundle: ## Create OLM's bundle, and a catalog with it, in out/olm from the images in out/image (PUSH=registry/repository, KEY=file, REPLACES=version)
	@test -d $(OUT)/image || { echo "there are no images in $(OUT)/image: make image first"; exit 1; }
	operator=$(OPERATOR) && \
	go run -C tools/olm . --root $(CURDIR) --version $(VERSION) --replaces "$(REPLACES)" --payload $(OUT)/payload --image $$operator --out $(OUT)/olm && \
	bundle=$$(go run -C tools/image . pack bundle $(OUT)/olm/bundle $(PACK)) && \
	go run -C tools/olm . --root $(CURDIR) --version $(VERSION) --replaces "$(REPLACES)" --payload $(OUT)/payload --image $$operator --bundle $$bundle --out $(OUT)/olm && \
	go run -C tools/image . pack catalog $(OUT)/olm/catalog $(subst bundle-image,catalog-image,$(PACK))
	$(if $(PUSH),for part in bundle catalog; do go run -C tools/image . push $(PUSH) --from $(OUT)/olm/$$part-image --tag v$(VERSION) || exit 1; done)

# OPERATOR is the operator's image in out/image, by digest.
OPERATOR = $$(go run -C tools/image . name operator --from $(OUT)/image --version $(VERSION) --repository $(REPOSITORY))

PACK = --version $(VERSION) --repository $(REPOSITORY) --out $(OUT)/olm/bundle-image $(if $(KEY),--key $(abspath $(KEY)))

.PHONY: chart
chart: ## Create the Helm chart in out/chart from config/ (PUSH=registry/repository pushes it to <PUSH>/charts)
	go run -C tools/chart . --root $(CURDIR) --version $(VERSION) --image $(IMAGE) --out $(OUT)/chart
	$(if $(PUSH),go -C tools/chart tool helm push $(OUT)/chart/wmco-$(VERSION).tgz oci://$(PUSH)/charts)

.PHONY: release
release: ## Build the release VERSION in out/release: images, chart, bundle, catalog, kubectl plugin, lists of parts, notes, checksums; then run make test-release (SINCE=tag, KEY=file, SUPPLIED=dir, PLUGIN_URL=where its files will be)
	$(MAKE) image
	operator=$(OPERATOR) && $(MAKE) chart IMAGE=$$operator PUSH=$(patsubst %/,%,$(dir $(PUSH)))
	$(MAKE) bundle
	$(MAKE) plugin
	git log --no-merges --format=%s $(if $(SINCE),$(SINCE)..) > $(OUT)/changes.txt
	go run -C tools/image . release --version $(VERSION) --images $(OUT)/image --bundle $(OUT)/olm/bundle-image \
	  --catalog $(OUT)/olm/catalog-image --chart $(OUT)/chart/wmco-$(VERSION).tgz \
	  --extra $(OUT)/chart/bootstrap-components.yaml --extra $(CURDIR)/api/bootstrap/metadata.yaml --payload $(OUT)/payload \
	  --plugin $(OUT)/plugin --sonobuoy $(CURDIR)/cmd/wmco-e2e/wmco-e2e.yaml --repository $(REPOSITORY) --changes $(OUT)/changes.txt \
	  --notes $(CURDIR)/docs/release-notes.md --source $(SOURCE) --out $(OUT)/release

.PHONY: test-release
test-release: controlplane ## Test out/release: push it to a local registry like make publish, and install it on a local cluster as in the README (KEY=file; its public key must be in the same folder, as .pub)
	@test -d $(OUT)/release || { echo "there is no release in $(OUT)/release: make release first"; exit 1; }
	WMCO_RELEASE=$(OUT) WMCO_RELEASE_PUBLIC_KEY=$(patsubst %.key,%.pub,$(abspath $(KEY))) $(GOTEST) -count=1 -timeout 30m -v -run Release ./test/release

.PHONY: publish
publish: ## Push images, bundle, catalog and chart from out/release, without another build (PUSH=registry/repository)
	@test -d $(OUT)/release || { echo "there is no release in $(OUT)/release: make release first"; exit 1; }
	for layout in image olm/bundle-image olm/catalog-image; do \
	  go run -C tools/image . push $(REPOSITORY) --from $(OUT)/$$layout --tag v$(VERSION) || exit 1; done
	go -C tools/chart tool helm push $(OUT)/chart/wmco-$(VERSION).tgz oci://$(patsubst %/,%,$(dir $(REPOSITORY)))/charts

.PHONY: bump
bump: ## Show newer patch releases of all pinned versions, with licences and known vulnerabilities (WRITE=1 pins them, MINOR=1 shows minor releases as well)
	go run -C tools/bump . --root $(CURDIR) --vulnerabilities $(if $(WRITE),--write) $(if $(MINOR),--minor)

# What deploy installs on each kind of cluster, and the rights for optional namespaces, as directory:namespace.
DEPLOY_openshift  := default
DEPLOY_kubernetes := kubernetes
RIGHTS_openshift  := machine-api:openshift-machine-api cluster-api:openshift-cluster-api
RIGHTS_kubernetes := kubernetes/flannel:kube-flannel
DEPLOY = $(or $(DEPLOY_$(CLUSTER)),$(error CLUSTER is openshift or kubernetes))

.PHONY: deploy
deploy: ## Install the operator into the cluster of the current KUBECONFIG, or upgrade it (CLUSTER=kubernetes)
	kubectl apply --server-side -k config/$(DEPLOY)
	for part in $(RIGHTS_$(CLUSTER)); do \
	  if kubectl get namespace $${part#*:} >/dev/null 2>&1; then kubectl apply --server-side -k config/$${part%:*}; fi; done

.PHONY: undeploy
undeploy: ## Remove the operator (CLUSTER=kubernetes); fails while a WindowsInstance exists: empty windows-instances first
	go run ./cmd/wmco uninstall-check
	for part in $(RIGHTS_$(CLUSTER)); do kubectl delete --ignore-not-found -k config/$${part%:*}; done
	kubectl delete --ignore-not-found -k config/$(DEPLOY)

.PHONY: clean
clean: ## Remove everything that was built here
	rm -rf $(OUT)

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Tools are built from their pinned modules. After the first time, Go's build cache makes this quick.
$(BIN)/controller-gen: tools/controller-gen/go.mod
	@mkdir -p $(BIN) && go build -C tools/controller-gen -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(BIN)/actionlint: tools/actionlint/go.mod
	@mkdir -p $(BIN) && go build -C tools/actionlint -o $@ github.com/rhysd/actionlint/cmd/actionlint

$(BIN)/golangci-lint: tools/lint/go.mod
	@mkdir -p $(BIN) && GOGC=400 $(NICE) go build -C tools/lint -o $@.new github.com/golangci/golangci-lint/v2/cmd/golangci-lint && mv $@.new $@
