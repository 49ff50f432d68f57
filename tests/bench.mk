# Benchmarks: commands, never timed tests; included by the Makefile. tests/bench/RESULTS.md has what they said.

.PHONY: deps-bench deps-peers bench bench-mixers bench-papers bench-http bench-beside bench-sessions bench-start bench-start-beside bench-endless bench-builds bench-peers bench-softmax

DEPS_BENCH := libcmocka-dev python3 # the former for what tests/bench shares with the tests
DEPS_PEERS := g++ python3-dev # torch.compile writes C++
PEERS := onnx==1.23.2 onnxruntime==1.31.1 openvino==2026.4.1 gguf==0.19.0

deps-bench: deps ## install what bench, bench-mixers, bench-http and bench-beside need as well
	$(call install,$(DEPS_BENCH))

deps-peers: deps-train ## install what bench-peers and, but for llama-server, bench-softmax need as well
	$(call install,$(DEPS_PEERS))
	@.venv/bin/pip install $(PEERS)

bench: deps-bench ## how fast this machine is, and what of that the shipped models and the papers' sizes reach (8 minutes)
	+@$(BUILD) programs build/tests/bench/streams build/tests/bench/limits
	@build/tests/bench/limits
	@for model in weights/models/*/; do echo && build/tests/bench/limits $$model && build/aft bench $$model --runs 21 || exit 1; done
	@echo && tests/bench/targets.py
	@echo && tests/bench/serving.py --model l24

bench-mixers: deps-bench ## what each token mixer costs, at 256, 1024 and 4096 bytes
	+@$(BUILD) programs
	@tests/bench/mixers.py

bench-papers: deps-bench ## what each mixer costs as its input grows, beside softmax: time, peak memory, a chart (12 minutes)
	+@$(BUILD) programs
	@tests/bench/papers.py $(PAPERS_FLAGS)

bench-http: deps-bench ## what 64 streams through HTTP reach of what they reach in the process, and what a long prompt does to them
	+@$(BUILD) programs build/tests/bench/streams
	@tests/bench/serving.py $(HTTP_FLAGS)

bench-beside: deps-bench ## what pictures do to running streams, and streams to pictures (2 minutes)
	+@$(BUILD) programs
	@tests/bench/beside.py $(BESIDE_FLAGS)

bench-sessions: ## what it costs that sessions are stored: 64 streams beside as many in memory (4 minutes)
	+@$(BUILD) programs
	@tests/bench/sessions.py $(SESSIONS_FLAGS)

bench-start: ## how long after its start a daemon answers first, and how much memory it has then (1 minute)
	+@$(BUILD) programs
	@tests/bench/start.py $(START_FLAGS)

bench-start-beside: deps-peers ## the same of models of the papers' sizes beside llama.cpp's LLAMA_SERVER=PROGRAM (1 minute)
	+@$(BUILD) programs
	@PYTHONPATH=weights/train $(PYTHON) tests/bench/start_beside.py $(if $(LLAMA_SERVER),--llama-server "$(LLAMA_SERVER)") $(START_FLAGS)

bench-endless: ## what a byte costs, and how much memory there is, as one text grows to 1,000,000 bytes (3 minutes)
	+@$(BUILD) programs
	@tests/bench/endless.py $(ENDLESS_FLAGS)

bench-builds: deps-bench ## how fast the engine is beside that of OTHER=DIR, another checkout where make has run (6 minutes)
	+@$(BUILD) programs
	@CC="$(CC)" LIBS="$(LIBS)" tests/bench/builds.py --other "$(OTHER)" $(BUILDS_FLAGS)

bench-peers: all ## aftd beside PyTorch, ONNX Runtime, OpenVINO, OpenBLAS (8 minutes); PEERS_FLAGS=--quick takes 2
	@$(PYTHON) -c 'import torch, onnx, onnxruntime, openvino' || echo "for what is missing of the peers: make deps-peers"
	@PYTHONPATH=weights/train $(PYTHON) tests/bench/peers.py $(PEERS_FLAGS)

bench-softmax: deps-peers ## softmax attention, of the model SOFTMAX=DIR, by llama.cpp's LLAMA_SERVER=PROGRAM, beside AFT by aftd (8 minutes)
	+@$(BUILD) programs
	@PYTHONPATH=weights/train $(PYTHON) tests/bench/softmax.py --softmax "$(SOFTMAX)" $(if $(LLAMA_SERVER),--llama-server "$(LLAMA_SERVER)") $(SOFTMAX_FLAGS)
