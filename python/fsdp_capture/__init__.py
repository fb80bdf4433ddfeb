"""Captures what PyTorch allocates and frees in one training step of a script, and writes it down as a model.

recorder.py records a step without changing what it allocates, structure.py finds ops, calls and the values between them,
tapes.py writes the events of each call, model_file.py folds equal calls and writes the file, session.py says which steps
of the script are recorded, and how.
"""
