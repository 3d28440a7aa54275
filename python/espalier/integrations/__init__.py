"""Classes for frameworks of Python, each imported by itself, with its framework."""
