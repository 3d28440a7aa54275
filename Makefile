# The two commands, on a machine that has make and git and nothing else:
#
#   make demo   installs what is missing, builds the program, runs it
#   make test   installs what is missing, builds everything, runs the tests
#
# Everything else is CMake's business: cmake --preset debug, and so on.
#
# Both build in build/release. The demo is content with the configuration it
# finds there, and without one configures the program alone, which needs no
# test library; the tests switch themselves on. Going back and forth rebuilds
# nothing.
.DEFAULT_GOAL := help
.PHONY: help demo test clean install-program install-all
.NOTPARALLEL:  # prerequisites in the order written

JOBS ?= $(shell nproc)
RELEASE := build/release

help:
	@echo "make demo    build the program and translate a few sentences"
	@echo "make test    build everything and run the tests"
	@echo "make clean   remove what was built"
	@echo "Both commands install missing packages through apt, and say so."

demo: install-program $(RELEASE)/build.ninja
	@cmake --build --preset release -j $(JOBS) --target espalier_cli
	@tools/demo.sh

test: install-all
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS)
	@ctest --preset release

# Depends on nothing: preset `program` would switch off the tests of a
# configuration that has them.
$(RELEASE)/build.ninja:
	@cmake --preset program

install-program:
	@tools/install_dependencies.sh program

install-all:
	@tools/install_dependencies.sh

clean:
	rm -rf build
