"""Reads torchtitan's Python configurations for the planner."""
