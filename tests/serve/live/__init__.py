"""Tests of `espalier serve` from outside: what they share."""
