"""Captures the tensors that PyTorch allocates and frees in one training step of a script, and writes them as a model.

recorder.py records a step without changing its allocations, structure.py finds ops, calls and the values between them,
tapes.py writes the events of each call, model_file.py folds equal calls and writes the file, session.py chooses the steps to
record and how.
"""
