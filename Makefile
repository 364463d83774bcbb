# dev, demo, test, lint, docs, bench: each sets up what it needs. A fresh Debian machine needs only Python >= 3.11 with venv, git, make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# uv checks the hashes of constraints beside editable installations, which pip refuses.
INSTALL_PINNED := $(BIN)/uv pip install --quiet --compile-bytecode --build-constraint .ci/constraints.txt --constraint
INSTALL := $(INSTALL_PINNED) .ci/constraints.txt --python
COMPILE = $(BIN)/uv pip compile $(UPGRADE) --quiet --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make constraints' --no-emit-package reveal-bench --no-emit-package reveal-leaderboard
SOURCES := pyproject.toml .ci/hatch_build.py $(wildcard reveal_bench/masks/_kernels*.[ch]) leaderboard/pyproject.toml .ci/constraints.txt
PYTEST_ARGS ?=
# Test processes: one more than cores, because tests of servers and workers mostly wait.
LANES ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
LMMS := .venv-lmms
LMMS_TORCH ?= torch
CFF := .venv-cff
EXCHANGE := .venv-exchange
PEERS := .venv-peers
COCO := .venv-coco
WHEELS := .venv-wheels
OLDEST := .venv-oldest
OLDEST_EXTRAS := curate,dicom,evaluate,receipts,report,run,saliency,scale,tables
# Build, validate, load, score, compare, evaluate modules, report, curation, Hub, upload to a board.
OLDEST_TESTS := tests/test_demo.py tests/test_evaluate_modules.py tests/test_kernels.py tests/api tests/cli tests/dataset/test_format.py tests/dataset/test_build.py

.PHONY: dev demo test soak load lint docs bench wheels constraints test-oldest clean

# .venv with all packages for tests and linters.
dev: $(VENV)/.installed-dev

demo: $(VENV)/.installed
	$(BIN)/reveal-leaderboard demo

test: $(VENV)/.installed-dev $(VENV)/.browser $(VENV)/.postgresql $(VENV)/.bubblewrap
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses $(LANES) --dist loadfile --no-loadscope-reorder --durations 50 $(PYTEST_ARGS)

# A part of the tests with the oldest versions that both pyproject.toml allow, on Python 3.11; then folders built by both.
test-oldest: $(OLDEST)/.installed $(VENV)/.installed
	PYTHONDONTWRITEBYTECODE= $(OLDEST)/bin/python -m pytest --numprocesses $(LANES) --dist loadfile $(OLDEST_TESTS)
	$(BIN)/python benchmarks/oldest.py $(OLDEST)/bin/python chestx-det midrc reveal-cxr rexecution

# The real lmms-eval in an environment of its own (2.4 GB), then the kill tests in full: every point with 20 seeds on both
# databases, an hour or so.
soak: $(VENV)/.installed-dev $(VENV)/.postgresql $(VENV)/.bubblewrap $(LMMS)/.installed $(CFF)/.installed $(EXCHANGE)/.installed $(PEERS)/.installed
	REVEAL_PEERS_PYTHON=$(CURDIR)/$(PEERS)/bin/python $(BIN)/python -m pytest tests/metrics/test_detection_peers.py tests/saliency \
		tests/api/test_accumulator_torch.py
	REVEAL_CFFCONVERT=$(CURDIR)/$(CFF)/bin/cffconvert $(BIN)/python -m pytest tests/dataset/test_citation.py
	REVEAL_EXCHANGE_PYTHON=$(CURDIR)/$(EXCHANGE)/bin/python REVEAL_DCIODVFY=dciodvfy $(BIN)/python -m pytest tests/exchange
	REVEAL_LMMS_PYTHON=$(CURDIR)/$(LMMS)/bin/python $(BIN)/python -m pytest tests/models/test_lmms_real.py
	REVEAL_KILL_SEEDS=20 $(BIN)/python -m pytest tests/leaderboard/kill --numprocesses auto --dist loadscope $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/zizmor --offline --quiet .github/workflows

# The documents as a site in site/: open site/index.html, or serve the folder to search it. A broken link stops the build.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file .ci/mkdocs.yml

# 60 submissions a minute for five minutes with 50 viewers, on loopback.
load: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/load.py

bench: $(VENV)/.installed-dev $(COCO)/.installed
	$(BIN)/python benchmarks

# The source distribution and the wheels of all platforms in dist/: built twice, checked, and tried where they run.
wheels: $(WHEELS)/.installed $(VENV)/.installed-dev
	$(WHEELS)/bin/python .ci/wheels.py
	$(WHEELS)/bin/python .ci/try_wheels.py

# Exact versions with the hashes of all their files, for every platform and Python, and the oldest versions that are allowed;
# UPGRADE=--upgrade takes the newest versions of packages that no pyproject.toml names.
constraints: $(BIN)/uv
	printf '%s\n' '--editable .[dev,dicom,docs]' '--editable ./leaderboard[postgresql,s3]' \
	| $(COMPILE) --universal --group wheels --output-file .ci/constraints.txt -
	printf '%s\n' '--editable .[$(OLDEST_EXTRAS)]' '--editable ./leaderboard[postgresql,s3]' 'hypothesis>=6.100' 'pytest>=8.3' 'pytest-xdist>=3.6' \
	| $(COMPILE) --resolution lowest-direct --output-file .ci/oldest.txt -

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\]$$/p' .ci/constraints.txt > $(VENV)/uv.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(VENV)/uv.txt

$(WHEELS)/.installed: $(BIN)/uv .ci/constraints.txt pyproject.toml
	$(PYTHON) -m venv $(WHEELS)
	$(INSTALL) $(WHEELS) --group wheels
	touch $@

$(OLDEST)/.installed: $(BIN)/uv $(SOURCES) .ci/oldest.txt
	$(BIN)/uv venv --quiet --clear --no-python-downloads --python 3.11 $(OLDEST)
	$(INSTALL_PINNED) .ci/oldest.txt --python $(OLDEST) --requirement .ci/oldest.txt --editable '.[$(OLDEST_EXTRAS)]' --editable './leaderboard[postgresql,s3]'
	touch $@

# PyPI's torchvision does not load beside a CPU-only torch, and then lmms-eval does not start.
$(LMMS)/.installed:
	$(PYTHON) -m venv $(LMMS)
	$(LMMS)/bin/python -m pip install --quiet --disable-pip-version-check "$(LMMS_TORCH)" lmms-eval==0.7.3
	$(LMMS)/bin/python -c "import transformers.pipelines" || $(LMMS)/bin/python -m pip uninstall --yes torchvision timm
	touch $@

# cffconvert (Apache-2.0) needs jsonschema below 4, so it has an environment of its own.
$(CFF)/.installed:
	$(PYTHON) -m venv $(CFF)
	$(CFF)/bin/python -m pip install --quiet --disable-pip-version-check cffconvert==2.0.0
	touch $@

# MONAI and panoptica as peers of detection, torch and OpenCV for heat maps. The parts of MONAI used here need only torch.
$(PEERS)/.installed:
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check "$(LMMS_TORCH)" scipy panoptica==2.1.7 opencv-python-headless==5.0.0.93
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps monai==1.6.1
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

# The tools whose formats `convert` writes, with a substitute for FiftyOne's database, and the checker of DICOM files.
$(EXCHANGE)/.installed:
	$(PYTHON) -m venv $(EXCHANGE)
	$(EXCHANGE)/bin/python -m pip install --quiet --disable-pip-version-check fiftyone==1.22.1 mongomock==4.3.0 label-studio-sdk==2.1.2 datumaro==1.13.12
	@command -v dciodvfy >/dev/null || .ci/install-dicom3tools
	touch $@

# Libraries that compare run-length masks, which the bench measures beside ours.
$(COCO)/.installed:
	$(PYTHON) -m venv $(COCO)
	$(COCO)/bin/python -m pip install --quiet --disable-pip-version-check pycocotools==2.0.11 faster-coco-eval==1.8.0 hotcoco==1.3.0 RLEMaskLib==0.8.1
	touch $@

$(VENV)/.installed: $(BIN)/uv $(SOURCES)
	$(INSTALL) $(VENV) --editable '.[curate,dicom,receipts,report]' --editable ./leaderboard
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) $(VENV) --editable '.[dev]' --editable './leaderboard[postgresql,s3]'
	touch $@

$(VENV)/.installed-docs: $(BIN)/uv $(SOURCES)
	$(INSTALL) $(VENV) --editable '.[docs]'
	touch $@

# Chromium for the page tests: the system's, else Debian's package, else the one that Playwright brings.
$(VENV)/.browser: $(VENV)/.installed-dev
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || .ci/install-browser
	touch $@

# PostgreSQL for the store's tests, which start it themselves: the system's, else Debian's package.
$(VENV)/.postgresql: $(VENV)/.installed-dev
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || .ci/install-postgresql
	touch $@

# The sandbox around the leaderboard's child processes, if it can be installed.
$(VENV)/.bubblewrap: $(VENV)/.installed-dev
	@command -v bwrap >/dev/null || .ci/install-bubblewrap
	touch $@

clean:
	rm -rf site dist $(VENV) .venv-readers $(LMMS) $(CFF) $(EXCHANGE) $(PEERS) $(COCO) $(WHEELS) .pytest_cache .mypy_cache .ruff_cache
