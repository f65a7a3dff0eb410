# Two commands do it all: `make demo` and `make test`. Each sets up what it needs, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
JOBS ?= 3

.PHONY: demo demo-appo demo-ppo demo-llm demo-rollouts test lint types wheel bench check clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    a real training with all telemetry on (curl 127.0.0.1:9464/metrics while it runs)"
	@echo "make demo-llm    asynchronous GRPO: two trainer ranks, two rollout workers, a controller; learns sums in two minutes"
	@echo "make demo-appo, demo-ppo, demo-rollouts    three more: unilab-rl's APPO, rsl_rl's PPO, rollouts with tool calls"
	@echo "make test    all tests, against real servers where they can be had"
	@echo "make check   tests, lint, types, wheel: what CI runs"
	@echo "make bench   what recording costs, side by side with others"

demo: $(VENV)/.demo
	@$(BIN)/python examples/sac_pendulum.py --telemetry on

# unilab-rl's own APPO, with our clocks on it; needs what the tests need.
demo-appo: $(VENV)/.test
	@bash tests/tools/get_unilab.sh .tools $(BIN)/python
	@PYTHONPATH=.tools/unilab $(BIN)/python examples/appo_unilab.py

# rsl_rl's own OnPolicyRunner with our log writer; needs what the tests need.
demo-ppo: $(VENV)/.test
	@$(BIN)/python examples/ppo_rsl_rl.py

demo-llm: $(VENV)/.demo
	@$(BIN)/python examples/grpo_arithmetic.py

demo-rollouts: $(VENV)/.demo
	@$(BIN)/python examples/llm_rollouts.py

test: $(VENV)/.test tools
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

.PHONY: tools
tools:
	@bash tests/tools/setup_tools.sh
	@bash tests/tools/get_unilab.sh "$${RLTEL_TOOLS_DIR:-.tools}" || [ "$$RLTEL_REQUIRE_SERVERS" != 1 ]

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

bench: $(VENV)/.bench tools
	$(BIN)/python benchmarks/recording.py
	$(BIN)/python benchmarks/stats.py
	$(BIN)/python benchmarks/timeline.py
	$(BIN)/python benchmarks/traces.py
	$(BIN)/python benchmarks/commit.py
	$(BIN)/python benchmarks/export.py
	$(BIN)/python benchmarks/event_files.py
	PYTHONPATH=.tools/unilab $(BIN)/python benchmarks/panel.py
	$(BIN)/python benchmarks/train_infer.py
	$(BIN)/python benchmarks/throughput.py

# The wheel is built, installed in an environment of its own, and imported there.
wheel: $(VENV)/.test
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .
	$(PYTHON) -m venv --clear $(VENV)/wheel
	$(VENV)/wheel/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	cd / && $(CURDIR)/$(VENV)/wheel/bin/python -c "import rltel; print('the wheel imports, version', rltel.__version__)"
	cd / && $(CURDIR)/$(VENV)/wheel/bin/rltel --help >/dev/null

check:
	bash .ci/run

$(BIN)/pip:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "rltel needs Python 3.11 or newer, this is " + sys.version'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "setting up $(VENV) (once)"
	$(PIP) --editable ".[demo]"
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "setting up $(VENV) for tests (once)"
	$(PIP) --editable ".[test]"
	@touch $@ $(VENV)/.demo

$(VENV)/.bench: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "setting up $(VENV) for benchmarks (once)"
	$(PIP) --editable ".[bench]"
	@touch $@ $(VENV)/.test $(VENV)/.demo

clean:
	rm -rf $(VENV) .tools dist logs
