# install · demo · first-minute · test · test-all · costs · flaky · mutants · simulate-ledger · fuzz · check · docs · flower-matrix · lock · licences · audit · wheel; everything runs in .venv.
# `install` makes it for the main job (demo, simulate, serve); what needs the developers' tools adds those (`tools`).
PYTHON ?= python3.11
COMPOSE ?= docker compose
ENGINE ?= docker
VENV := .venv
BIN := $(VENV)/bin
export FLWR_TELEMETRY_ENABLED = 0
export FLWR_DISABLE_UPDATE_CHECK = 1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION = 1
export RAY_USAGE_STATS_ENABLED = 0
# What a process compiled, the next ones read: a test that starts a process would compile PyTorch and Fieldfare again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install tools demo first-minute test test-all check test-long costs flaky mutants simulate-ledger fuzz containers-test containers-random docs words flower-matrix lock licences audit pin-images wheel
.PHONY: bench-mechanisms bench-optimizers bench-simulation bench-cores bench-scale bench-api bench-rounds clean

PIP := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --constraint constraints.txt

# EXTRAS=service leaves PyTorch and Flower out: prices, ledger, API and page alone.
EXTRAS ?= demo
install: $(VENV)/.installed-$(EXTRAS)

tools: $(VENV)/.tools

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# PyPI's PyTorch for Linux brings CUDA, 4 GB of it; the CPU build lies on PyTorch's own index. TORCH_INDEX= takes what pip finds.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
$(VENV)/.torch: | $(VENV)/bin/python
	$(if $(TORCH_INDEX),$(PIP) --no-compile --no-deps --retries 1 --timeout 15 --index-url $(TORCH_INDEX) torch \
		|| echo "No CPU build of PyTorch at $(TORCH_INDEX): pip installs what it finds; on Linux that brings CUDA.")
	touch $@

# Python compiles what is used when it is first used; pip would compile all of it: half of the time and 0.3 GB.
$(VENV)/.installed-$(EXTRAS): pyproject.toml constraints.txt | $(VENV)/bin/python $(if $(filter service,$(EXTRAS)),,$(VENV)/.torch)
	$(PIP) --no-compile --editable '.[$(EXTRAS)]'
	touch $@

# LOCKED=1 installs the very files that locks/dev.lock names, as the workflows do; PyTorch is exempt (deploy/supply/lock.py).
# The add-on with research tasks and forecast, which evidence pages and tests need, comes with the tools.
$(VENV)/.tools: pyproject.toml benchmarks/research/pyproject.toml constraints.txt | $(VENV)/bin/python $(VENV)/.torch
ifdef LOCKED
	PIP_CONSTRAINT=locks/dev.lock $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement locks/dev.lock
endif
	$(PIP) $(if $(LOCKED),--no-build-isolation) --editable '.[dev]' --editable benchmarks/research
	touch $@ $(VENV)/.installed-$(EXTRAS)

demo: install
	$(BIN)/fieldfare demo $(ARGS)

# An empty environment and account: installs the wheel, serves, trains on real data; what each step takes, beside its aim.
first-minute:
	$(PYTHON) deploy/supply/first_minute.py --extras service
	$(PYTHON) deploy/supply/first_minute.py --extras demo

check: tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python deploy/supply/lines.py
	$(BIN)/python benchmarks/claims/bits.py

# `make check`, and what tests/suite.toml keeps: each room's contract, in minutes.
test: tools
	$(BIN)/python tests/quick.py --quick -m "not slow"

# What each test costs, into tests/costs.toml: `make test` leaves costly ones out. Needs a quiet machine and half an hour.
costs: tools
	CHECK=0 COSTS=tests/costs.toml $(BIN)/python tests/quick.py -p tests.support.cpu -m "not slow"

# `make check`, and every case that takes seconds; ARGS="--seconds 1800 --turn 7" runs as many as fit, from another file on each turn.
# Four workers on two cores: many tests wait for a server or a clock.
test-all: tools
	$(BIN)/python tests/quick.py --workers=4 -m "not slow" $(ARGS)

# `make test` on a busy machine, each test that waits twenty times; which failed. RUNS=3 for a few.
flaky: tools
	$(BIN)/python tests/flaky.py $(RUNS)

test-long: tools
	$(BIN)/pytest -n 2 --dist loadfile -m slow

# Broken builds, one line each, that named tests must notice; NAMES="grid ledger" for some of them.
mutants: tools
	$(BIN)/python tests/mutants/run.py --jobs 2 $(ARGS) $(NAMES)

# Histories of the ledger, one a seed, from a first seed of this moment on two cores (docs/tested.md); FIRST=0 for the same ones again.
simulate-ledger: SECONDS ?= 60
simulate-ledger: FIRST ?= $(shell date +%s)
simulate-ledger: tools
	cd tests && for core in 0 1; do ../$(BIN)/python -m simulator --seconds $(SECONDS) --first $$(($(FIRST) + core)) --step 2 & jobs="$$jobs $$!"; done; \
		for job in $$jobs; do wait $$job || failed=1; done; exit $${failed:-0}

# Coverage-guided fuzzing of what reads nodes' replies, in a venv of its own; RUNS=10000 for a short one.
fuzz: RUNS ?= 1000000
fuzz: tools
	$(PYTHON) -m venv $(VENV)/fuzz
	$(VENV)/fuzz/bin/python -m pip install --quiet --disable-pip-version-check 'atheris>=3,<4'
	mkdir -p $(VENV)/fuzz/corpus
	PYTHONPATH=$$($(BIN)/python -c 'import sys; print(":".join(p for p in sys.path if p))') \
		$(VENV)/fuzz/bin/python tests/fuzz/fuzz.py $(VENV)/fuzz/corpus tests/fuzz/corpus -runs=$(RUNS) -max_len=96

# Every sentence that refuses something, into one file that a test compares: read the difference.
words: tools
	$(BIN)/python docs/hooks/refusals.py

# What the text in the code is, by room: docstrings, comments, verbs, arguments. ARGS="--draw 60" draws sentences to read aloud.
prose: tools
	$(BIN)/python tests/prose.py $(ARGS)

# The tests that name Flower, against three Flowers; writes the table of benchmarks/results/versions.md.
flower-matrix: tools
	$(BIN)/python tests/flower/matrix.py $(ARGS)

# The documentation site, into site/; any broken link or reference fails.
docs: tools
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# -- what is delivered: locks, licences, known vulnerabilities, images by digest, the wheel ---------------------------
lock: tools
	$(BIN)/python deploy/supply/lock.py $(BIN)/uv

licences: tools
	$(BIN)/python deploy/supply/licences.py

# ADVISORIES=CLONE of PyPA's advisory database; without one the audit is skipped, and says so.
audit: tools
	$(BIN)/python deploy/supply/audit.py "$(ADVISORIES)"

pin-images: tools
	$(BIN)/python deploy/supply/pin_images.py "$(ENGINE)"

# The same bytes on every machine: files carry the time of the newest commit, or SOURCE_DATE_EPOCH.
wheel: tools
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(BIN)/hatchling build --target wheel --target sdist

# All tests on real containers; SELECT="containers and not slow" for the short ones.
SELECT ?= containers
containers-test: tools
	$(COMPOSE) build superlink
	CONTAINERS=1 COMPOSE="$(COMPOSE)" ENGINE="$(ENGINE)" $(BIN)/pytest -m "$(SELECT)" $(ARGS) tests/e2e

# Containers that die at random in the middle of runs; SCHEDULES=20, or SEEDS="17 23" to repeat some.
SCHEDULES ?= 20
containers-random: tools
	$(COMPOSE) build superlink
	CONTAINERS=1 CONTAINERS_SCHEDULES="$(SCHEDULES)" CONTAINERS_SEEDS="$(SEEDS)" COMPOSE="$(COMPOSE)" ENGINE="$(ENGINE)" \
	  $(BIN)/pytest -s tests/e2e/test_containers_random.py $(ARGS)

bench-mechanisms: tools
	$(BIN)/python benchmarks/mechanisms.py $(ARGS)

bench-optimizers: tools
	$(BIN)/python benchmarks/optimizers.py $(ARGS)

# pfl 0.6.0 wants an older dp-accounting, so it gets an environment of its own.
$(VENV)-pfl/.installed:
	$(PYTHON) -m venv $(VENV)-pfl
	$(VENV)-pfl/bin/python -m pip install --quiet --disable-pip-version-check pfl==0.6.0 torch==2.13.0 numpy
	touch $@

bench-simulation: tools $(VENV)-pfl/.installed
	$(BIN)/python benchmarks/simulation.py --pfl $(VENV)-pfl/bin/python --flower --out benchmarks/results --page benchmarks/results/speed.md $(ARGS)

bench-cores: tools
	$(BIN)/python benchmarks/cores.py --ray --out benchmarks/results $(ARGS)

# 1 000 000 users, 1 000 rounds of cohort 1 000; needs about 0.6 GB of disk.
bench-scale: tools
	$(BIN)/python benchmarks/simulation_scale.py --out benchmarks/results/simulation_scale.json $(ARGS)

# 10 000 runs, 2 000 000 rounds on each database, and the page in Chromium; a quiet machine, 6 GB of disk.
bench-api: tools
	$(BIN)/python benchmarks/api.py --out benchmarks/results $(ARGS)
	$(BIN)/python benchmarks/page.py --out benchmarks/results

# Two federations, one after the other; needs a quiet machine.
bench-rounds: tools
	$(BIN)/python benchmarks/round_time.py --out benchmarks/results $(ARGS)

clean:
	rm -rf $(VENV) $(VENV)-pfl site dist runs demo-output .flower-matrix .pytest_cache .mypy_cache .ruff_cache .hypothesis
