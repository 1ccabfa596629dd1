PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/.installed
PARALLEL := -n auto --dist loadfile  # a file's tests share what they set up

.PHONY: demo test test-all check audit benchmark docs evidence schemas clean wheel-test transformers-test
.PHONY: evidence-a evidence-b evidence-c evidence-d-snli evidence-d-imdb evidence-e

demo: $(INSTALLED)  ## fine-tune MiniLM on real reviews, attack it, harden it, and compare: about five minutes
	HF_HUB_OFFLINE=1 $(BIN)/rosewood demo

test: $(INSTALLED)  ## the tests that need no data folder and little time
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest $(PARALLEL)

test-all: $(INSTALLED)  ## every test; those on real data need ROSEWOOD_DATA
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest $(PARALLEL) -m ""

check: $(INSTALLED)  ## style and types
	$(BIN)/ruff check src tests benchmarks tools examples
	$(BIN)/ruff format --check src tests benchmarks tools examples
	$(BIN)/mypy

docs: $(INSTALLED)  ## the documentation as a site that opens from the disk: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

audit: $(INSTALLED)  ## known vulnerabilities of the pinned dependencies; asks the vulnerability service, so needs the network
	$(BIN)/pip-audit --strict --requirement constraints.txt --no-deps --disable-pip

wheel-test: ## build the wheel, install it in a clean environment, use it from an empty folder: minutes
	PYTHON=$(PYTHON) scripts/test_wheel.sh

transformers-test: $(INSTALLED)  ## a core of the tests with the lowest and the highest transformers that is allowed
	scripts/test_transformers_range.sh

benchmark: $(INSTALLED)  ## what a training step costs, in passes
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/step_cost.py

RUN = OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 nice -n 19 $(BIN)/rosewood compare --jobs 2
KEEP = $(BIN)/python benchmarks/keep_results.py

evidence: $(INSTALLED)  ## the tables and figures of docs/evidence.md, from experiments/results
	$(BIN)/python benchmarks/evidence_page.py

evidence-a: $(INSTALLED)  ## go on with the runs of ROSE's tables (hours; Ctrl-C and again at any time), and keep their results
	$(KEEP) --unpack runs/evidence-a-tuning runs/evidence-a
	-$(RUN) experiments/evidence-a-tuning.yaml
	$(KEEP) runs/evidence-a-tuning
	$(BIN)/python benchmarks/evidence_a.py
	-$(RUN) experiments/evidence-a.yaml
	$(KEEP) runs/evidence-a

evidence-b: $(INSTALLED)  ## go on with the runs of the defences' table, and keep their results
	$(KEEP) --unpack runs/defences-sst2
	-$(RUN) experiments/defences-sst2.yaml
	$(KEEP) runs/defences-sst2
	$(BIN)/python benchmarks/defences_page.py

evidence-c evidence-d-snli evidence-d-imdb evidence-e: $(INSTALLED)  ## go on with another part of the evidence
	$(KEEP) --unpack runs/$@
	-$(RUN) experiments/$@.yaml
	$(KEEP) runs/$@

schemas: $(INSTALLED)  ## the JSON Schemas of task, suite and experiment files
	for kind in task suite experiment; do $(BIN)/rosewood schema $$kind > schemas/$$kind.json; done

clean:
	rm -rf site .venv .pytest_cache .mypy_cache .ruff_cache

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser,demo,dev,docs,lexicon,lora,onnx,playground,ray,tune]'
	touch $(INSTALLED)
