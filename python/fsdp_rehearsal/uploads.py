"""Keeps a rehearsal's results away from trackers and hubs: its values have no meaning.

The command sets their environment variables (runs/rehearse_offline.cpp). Here are the calls that request the network by an
argument, and those that would fail without it although the script could train: uploads to the Hugging Face hub are answered as
if they had succeeded, and recorded.
"""

from __future__ import annotations

import functools
import os
import types
from types import ModuleType
from typing import Any

from fsdp_rehearsal.after_import import after_import
from fsdp_rehearsal.guard import guarded, warn

_OF_REPOSITORIES = ("create_repo", "duplicate_space", "update_repo_settings", "update_repo_visibility", "move_repo", "delete_repo")
_OF_COMMITS = (
    "upload_file",
    "upload_folder",
    "upload_large_folder",
    "create_commit",
    "delete_file",
    "delete_files",
    "delete_folder",
    "preupload_lfs_files",
    "super_squash_history",
    "create_branch",
    "delete_branch",
    "create_tag",
    "delete_tag",
    "create_pull_request",
    "create_discussion",
)
_HUB = "https://huggingface.co"


def install() -> None:
    """Changes the libraries when they are imported."""
    after_import("huggingface_hub.hf_api", _hub)
    after_import("wandb", _wandb)
    after_import("mlflow", _mlflow)
    after_import("comet_ml", _comet)


def _note(library: str, call: str) -> None:
    warn("uploads", f"{library}: {call} was called and nothing was sent.")


@guarded("The Hugging Face hub")
def _hub(module: ModuleType) -> None:
    """The functions of the module are methods of its one HfApi object."""
    api = module.HfApi
    whoami = api.whoami

    def replace(name: str, answer) -> None:
        real = getattr(api, name, None)
        if real is None:
            return

        @functools.wraps(real)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            _note("huggingface_hub", name)
            result = answer(args, kwargs)
            return _Future(result) if kwargs.get("run_as_future") else result

        setattr(api, name, call)
        if hasattr(module, name):
            setattr(module, name, types.MethodType(call, module.api))

    for name in _OF_REPOSITORIES:
        replace(name, lambda args, kwargs: _repository(module, args, kwargs))
    for name in _OF_COMMITS:
        replace(name, lambda args, kwargs: _commit(module, args, kwargs))

    def who(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return whoami(self, *args, **kwargs)
        except Exception:  # without the network, or without a token
            return {"name": "rehearsal", "type": "user", "orgs": [], "auth": {}}

    api.whoami = who
    if hasattr(module, "whoami"):
        module.whoami = types.MethodType(who, module.api)


def _repository(module: ModuleType, args: tuple, kwargs: dict) -> Any:
    name = str(kwargs.get("repo_id") or (args[0] if args else "rehearsal/rehearsal"))
    return module.RepoUrl(f"{_HUB}/{name if '/' in name else 'rehearsal/' + name}")


def _commit(module: ModuleType, args: tuple, kwargs: dict) -> Any:
    name = str(kwargs.get("repo_id") or "rehearsal/rehearsal")
    return module.CommitInfo(
        commit_url=f"{_HUB}/{name}/commit/{'0' * 40}", commit_message="", commit_description="", oid="0" * 40
    )


class _Future:
    """The result of run_as_future=True: the upload counts as done."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, timeout: Any = None) -> Any:
        return self._value

    def done(self) -> bool:
        return True

    def add_done_callback(self, call: Any) -> None:
        call(self)


@guarded("wandb")
def _wandb(wandb: ModuleType) -> None:
    real = wandb.init

    @functools.wraps(real)
    def init(*args: Any, **kwargs: Any) -> Any:
        _note("wandb", "init")
        kwargs["mode"] = "disabled"
        return real(*args, **kwargs)

    wandb.init = init
    wandb.login = lambda *args, **kwargs: True


@guarded("mlflow")
def _mlflow(mlflow: ModuleType) -> None:
    def set_tracking_uri(uri: Any) -> None:
        if "://" in str(uri) and not str(uri).startswith(("file:", "sqlite:")):
            _note("mlflow", f"set_tracking_uri({str(uri)!r})")
            uri = os.environ.get("MLFLOW_TRACKING_URI", "file:mlruns")
        real(uri)

    real = mlflow.set_tracking_uri
    mlflow.set_tracking_uri = set_tracking_uri


@guarded("comet_ml")
def _comet(comet: ModuleType) -> None:
    """An Experiment sends; an OfflineExperiment does not."""
    offline = getattr(comet, "OfflineExperiment", None)
    if offline is None:
        return

    def make(*args: Any, **kwargs: Any) -> Any:
        _note("comet_ml", "Experiment")
        kwargs.pop("api_key", None)
        return offline(offline_directory=os.environ.get("COMET_OFFLINE_DIRECTORY"), **kwargs)

    comet.Experiment = make
