"""Results that are known although an input is not.

*Some inputs decide alone*: true stays true whatever is or-ed to it. So `generate` of transformers ends at its
`max_new_tokens`: whether a sequence has reached its last token is unknown, but that all are long enough is known.

*Some answers are assumed*, because nobody can know them and every other answer would end the program or change its shapes:

* Numbers are finite: `isfinite` is true, `isnan` and `isinf` are false.
* No token is the last one: `isin` of unknown integers is false, and no unknown integer equals a number. Generation continues
  to its maximum length. A loop may wait for the equality alone, so loops.py counts reads of what follows from it (ASSUMED).
* Routing is balanced (`--routing balanced`): of E experts, token t uses k, starting at (t k) mod E. A `topk` counts as a
  router if a module runs it and its indices then select rows or are counted; accuracy does neither.

*Collectives*: every rank has the same data as this one, so a sum is a multiple, a gather returns copies, and each rank gets from
all others what it sends to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

from fsdp_rehearsal import frames
from fsdp_rehearsal.guard import warn
from fsdp_rehearsal.known_copies import KnownCopies

ASSUMED = "assumed"  # the mark of results that follow from an assumed inequality
MOST_EXPERTS = 1024  # a topk over more scores is not a choice of experts

_FINITE = {"isfinite": True, "isreal": True, "isnan": False, "isinf": False, "isposinf": False, "isneginf": False}
EQUALS = {"eq": False, "__eq__": False, "ne": True, "__ne__": True}
_OR = frozenset("__or__ __ror__ __ior__ logical_or logical_or_ bitwise_or bitwise_or_".split())
_AND = frozenset("__and__ __rand__ __iand__ logical_and logical_and_ bitwise_and bitwise_and_".split())
_TIMES = frozenset("__mul__ __rmul__ __imul__ mul mul_ multiply multiply_".split())
# Calls that select or count by indices.
_BY_INDEX = frozenset(
    "one_hot bincount histc nonzero argwhere where sort argsort unique unique_consecutive gather scatter scatter_ scatter_add "
    "scatter_add_ scatter_reduce scatter_reduce_ index_select index_add index_add_ index_copy index_copy_ index_fill index_fill_ "
    "index_put index_put_ take take_along_dim embedding masked_select repeat_interleave __getitem__ __setitem__".split()
)


class Rules:
    def __init__(self, torch: Any, copies: KnownCopies, balanced_routing: bool, in_module: Callable[[], bool]) -> None:
        self._torch, self._copies = torch, copies
        self._balanced_routing, self._in_module = balanced_routing, in_module
        self.router: Optional[tuple[str, Optional[str], Optional[int]]] = None  # of the last topk: the text and place of a
                                                                                # warning

    def results(self, name: str, args: Any, kwargs: dict[str, Any]) -> Optional[list[Any]]:
        """The results of a call with an unknown input, in a flat list; None if they are unknown, too."""
        if name in _FINITE:
            return self._same(args[0], _FINITE[name])
        if name == "isin":
            elements = args[0] if args else kwargs.get("elements")
            return self._same(elements, bool(kwargs.get("invert"))) if self._is_integers(elements) else None
        if name in EQUALS and len(args) == 2:
            is_ids = self._is_integers(args[0]) and isinstance(args[1], int) and not isinstance(args[1], bool)
            return self._same(args[0], EQUALS[name]) if is_ids else None
        if name in _OR or name in _AND or name in _TIMES:
            return self._decided(name, args)
        if name == "topk":
            return self._routing(args, kwargs)
        return None

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._torch.Tensor)

    def _is_integers(self, value: Any) -> bool:
        return self._is_tensor(value) and not value.is_floating_point() and value.dtype != self._torch.bool

    def _same(self, like: Any, value: bool) -> Optional[list[Any]]:
        if not self._is_tensor(like) or not self._copies.has_room(like, like.numel()):
            return None
        return [self._torch.full(like.shape, value, dtype=self._torch.bool, device="cpu")]

    def _decided(self, name: str, args: Any) -> Optional[list[Any]]:
        """`or` with all true, `and` with all zero, an integer times all zero."""
        torch = self._torch
        if len(args) != 2 or not all(isinstance(a, (torch.Tensor, bool, int)) for a in args):
            return None
        dtype = torch.bool if name.startswith("logical") else torch.result_type(*args)
        shape = torch.broadcast_shapes(*(getattr(a, "shape", ()) for a in args))
        if dtype.is_floating_point or dtype.is_complex or name in _OR and dtype != torch.bool:
            return None
        for known in map(self._value, args):
            if known is None or name in _OR and not bool(known.all()) or name not in _OR and bool(known.any()):
                continue
            if known.dim() == 0 or known.shape == shape:
                return [torch.full(shape, name in _OR, dtype=dtype, device="cpu")]
        return None

    def _value(self, value: Any) -> Optional[Any]:
        """A value on the host, if it is known; numbers always are."""
        if not self._is_tensor(value):
            return self._torch.tensor(value, device="cpu")
        return self._copies.of(value) if value.is_cuda else value

    def _routing(self, args: Any, kwargs: dict[str, Any]) -> Optional[list[Any]]:
        """The assumed choice of experts, as (values, indices); the values remain unknown."""
        if not self._balanced_routing or not args or not self._copies.on_device(args[0]):
            return None
        scores = args[0]
        k = args[1] if len(args) > 1 else kwargs["k"]
        dimension = args[2] if len(args) > 2 else kwargs.get("dim", -1)
        experts = scores.size(-1) if scores.dim() else 0
        if dimension not in (-1, scores.dim() - 1) or not k < experts <= MOST_EXPERTS:
            return None
        if not self._in_module() and not (self._torch.is_grad_enabled() and scores.requires_grad):
            return None
        frame = frames.user_frame(6) or {"file": None, "line": None}
        text = f"Routing is taken to be balanced: each of {experts} experts gets the same number of tokens, {k} experts a token."
        tokens = scores.numel() // experts
        chosen = (self._torch.arange(tokens * k, device="cpu") % experts).view(*scores.shape[:-1], k)
        self.router = (text, frame["file"], frame["line"])
        return [None, chosen]

    def note_router(self, name: str, args: Any, kwargs: dict[str, Any]) -> None:
        """Warns that routing was assumed, once its indices are used as such: `name` is about to be called."""
        if name not in _BY_INDEX or name == "where" and len(args) != 1:
            return
        picks = args[1:] if name in ("__getitem__", "__setitem__") else args
        for value in self._torch.utils._pytree.tree_leaves((picks, kwargs)):
            router = self._copies.mark_of(value)
            if router is not None and router != ASSUMED:
                warn("balanced_routing", *router)

    def collective(self, name: str, args: Any, kwargs: dict[str, Any], size: int, rank: int) -> list[tuple[Any, Optional[Any]]]:
        """The tensors that a collective of torch.distributed writes, with their values if they are known. `rank`: this one's in
        the group of `size`."""
        torch = self._torch
        if name == "all_reduce":
            tensor = args[0] if args else kwargs["tensor"]
            op = args[1] if len(args) > 1 else kwargs.get("op")
            return [(tensor, _reduced(torch, self._value(tensor), op, size))]
        if name == "all_gather":
            outputs, tensor = args[0], args[1]
            return [(out, self._value(tensor)) for out in outputs]
        if name == "all_gather_into_tensor":
            out, value = args[0], self._value(args[1])
            return [(out, None if value is None else torch.cat([value.flatten()] * size).view(out.shape))]
        if name == "all_to_all_single" and not any((*args[2:4], kwargs.get("output_split_sizes"), kwargs.get("input_split_sizes"))):
            out, value = args[0], self._value(args[1])
            return [(out, None if value is None else torch.cat([value.chunk(size)[rank]] * size).view(out.shape))]
        return [(args[0], None)]  # a part of a sum, an exchange of unequal parts


def _reduced(torch: Any, value: Optional[Any], op: Any, size: int) -> Optional[Any]:
    if value is None or op is None or op == torch.distributed.ReduceOp.SUM:
        return None if value is None else value * size
    kept = (torch.distributed.ReduceOp.MAX, torch.distributed.ReduceOp.MIN, torch.distributed.ReduceOp.AVG)
    return value if op in kept else None
