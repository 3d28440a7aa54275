# The two commands, on a machine that has make and git and nothing else:
#
#   make demo   installs what is missing, builds the program, runs it
#   make test   installs what is missing, builds everything, runs the tests
#
# And make serve, which builds the program as the demo does, and serves the
# embedded model until Ctrl-C: at PORT, 8000 without. make test-routers runs the
# tests behind routers alone, and make test-clients those of frameworks that use
# the server, which make test leaves out.
#
# And two for a night: make soak simulates the scheduler, SOAK_EVENTS events,
# and prints what came of it; make fuzz runs the fuzz targets, FUZZ_SECONDS each,
# or FUZZ_TARGET alone (docs/fuzzing.md).
#
# Everything else is CMake's business: cmake --preset debug, and so on.
#
# Both build in build/release. The demo is content with the configuration it
# finds there, and without one configures the program alone, which needs no
# test library; the tests switch themselves on. Going back and forth rebuilds
# nothing.
#
# Where there is an NVIDIA GPU with its driver and a CUDA compiler, the demo
# builds in build/cuda and runs on the GPU; make demo DEVICE=cpu or DEVICE=cuda
# decides it, also from the environment.
.DEFAULT_GOAL := help
.PHONY: help demo demo-cpu demo-cuda serve test build-tests test-routers \
  test-clients soak \
  fuzz clean install-program install-all find-compiler find-gpu
.NOTPARALLEL:  # prerequisites in the order written

JOBS ?= $(shell nproc)
RELEASE := build/release
CUDA := build/cuda

help:
	@echo "make demo    build the program and translate a few sentences,"
	@echo "             on a GPU where there is one (DEVICE=cpu: never)"
	@echo "make serve   build the program and serve the embedded model, at PORT"
	@echo "make test    build everything and run the tests"
	@echo "make test-clients   run frameworks of the package index on the server"
	@echo "make soak    simulate the scheduler, SOAK_EVENTS events (100 million)"
	@echo "make fuzz    run the fuzz targets, FUZZ_SECONDS (60) each, or FUZZ_TARGET"
	@echo "make clean   remove what was built"
	@echo "They install missing packages through apt, and say so."

# Lazy: only the demo looks for a GPU.
DEVICE ?= $(shell tools/find_cuda.sh gpu >&2 && tools/find_cuda.sh compiler >&2 \
	&& echo cuda || echo cpu)

demo:
	@device="$(DEVICE)"; case "$$device" in \
	cpu|cuda) $(MAKE) --no-print-directory "demo-$$device" ;; \
	*) echo "DEVICE must be cpu or cuda, got $$device" >&2; exit 2 ;; esac

demo-cpu: install-program $(RELEASE)/build.ninja
	@cmake --build --preset release -j $(JOBS) --target espalier_cli
	@tools/demo.sh $(RELEASE) cpu

demo-cuda: find-gpu find-compiler install-program $(CUDA)/build.ninja
	@cmake --build --preset cuda -j $(JOBS) --target espalier_cli
	@tools/demo.sh $(CUDA) cuda

PORT ?= 8000

serve: install-program $(RELEASE)/build.ninja
	@cmake --build --preset release -j $(JOBS) --target espalier_cli
	@exec tools/serve.sh $(RELEASE) $(PORT)

# What was not tested stands at the end, with the reason: a client of the package
# index where there is none, say.
test: build-tests
	@ctest --preset release; status=$$?; \
	tools/skipped_tests.py $(RELEASE); exit $$status

build-tests: install-all
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS)

# Envoy, vllm-router and nginx in front of three replicas (docs/deploy.md).
test-routers: install-all
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS) --target espalier_cli
	@ctest --preset release -L routers

# Frameworks of the package index against the server, each in an environment of
# its own: some minutes and a gigabyte at the first time.
CLIENT_TESTS := frameworks lm_eval trl

test-clients: install-all
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS) --target espalier_cli
	@status=0; for test in $(CLIENT_TESTS); do \
	  python3 -B tests/serve/client/$${test}_test.py $(RELEASE)/bin/espalier \
	    $(RELEASE)/live_tests; result=$$?; \
	  echo "$${test}_test: exit code $$result (77: skipped)"; \
	  case $$result in 0|77) ;; *) status=1 ;; esac; \
	done; exit $$status

SOAK_EVENTS ?= 100000000

soak: install-all
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS) --target soak
	@$(RELEASE)/bin/soak $(SOAK_EVENTS)

FUZZ_SECONDS ?= 60
FUZZ_TARGET ?=

fuzz:
	@tools/install_dependencies.sh program fuzz
	@cmake --preset fuzz
	@cmake --build --preset fuzz -j $(JOBS)
	@tools/run_fuzz_targets.sh $(FUZZ_SECONDS) $(FUZZ_TARGET)

# Asked first, because packages and a build take minutes.
find-compiler:
	@tools/find_cuda.sh compiler >/dev/null || { echo "DEVICE=cuda needs nvcc" \
	  "of CUDA 12.4 or later; DEVICE=cpu works everywhere" >&2; exit 1; }

find-gpu:
	@tools/find_cuda.sh gpu >/dev/null || { echo "DEVICE=cuda needs an NVIDIA" \
	  "GPU of compute capability 8.0 or later, with its driver; DEVICE=cpu" \
	  "works everywhere" >&2; exit 1; }

# These depend on nothing: presets `program` and `cuda-program` would switch off
# the tests of a configuration that has them.
$(RELEASE)/build.ninja:
	@cmake --preset program

$(CUDA)/build.ninja:
	@CUDACXX=$$(tools/find_cuda.sh compiler) cmake --preset cuda-program

install-program:
	@tools/install_dependencies.sh program

install-all:
	@tools/install_dependencies.sh

clean:
	rm -rf build
