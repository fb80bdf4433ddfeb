"""Training scripts that are drawn by a seed, as people write them: stages of blocks in many shapes, losses, loops and optimizers.

A script is text that stands alone. The same seed draws the same text. What FSDP2 cannot run at all is not drawn (a parameter that is
read beside its module under units inside blocks, matrices of Muon that do not divide); what a capture refuses is, with the sentence
that is expected.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

CLASSES = {
    "Perceptron": """
class Perceptron(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))
""",
    "Gated": """
class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))
""",
    "Attention": """
class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, 4, h // 4).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, h))
        return x + self.mlp(self.norm2(x))
""",
    "Mixing": """
class Mixing(nn.Module):
    \"\"\"Mixes neighbors, then features.\"\"\"

    def __init__(self, width):
        super().__init__()
        self.norm, self.near = nn.LayerNorm(width), nn.Conv1d(width, width, 3, padding=1, groups=4)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.ReLU(), nn.Linear(3 * width, width))

    def forward(self, x):
        x = x + self.near(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.mlp(x)
""",
    "OwnProduct": """
class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = F.relu(x)
        ctx.save_for_backward(y)
        return y * y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return 2 * y * gradient


class OwnProduct(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x + self.scale * self.down(Squared.apply(self.up(x)))
""",
    "Crossed": """
class Crossed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.query, self.both, self.out = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x, memory):
        b, s, h = x.shape
        q = self.query(self.norm(x)).view(b, s, 4, h // 4).transpose(1, 2)
        k, v = self.both(memory).view(b, -1, 2, 4, h // 4).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, h))
""",
    "Joined": """
class Joined(nn.Module):
    def __init__(self, block, width):
        super().__init__()
        self.join, self.block = nn.Linear(2 * width, width), block(width)

    def forward(self, x, skipped):
        return self.block(self.join(torch.cat((x, skipped), dim=-1)))
""",
    "Encoder": """
class Encoder(nn.Module):
    def __init__(self, block, width, count):
        super().__init__()
        self.begin, self.end = nn.Linear(width, width), nn.Linear(width, width)
        self.layers = nn.ModuleList(block(width) for _ in range(count))

    def forward(self, x):
        x = self.begin(x)
        for layer in self.layers:
            x = layer(x)
        return self.end(x)
""",
    "Adapted": """
class Adapted(nn.Module):
    \"\"\"A linear layer that stays, and a small product that is trained.\"\"\"

    def __init__(self, width, rank=8):
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.a, self.b = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


class AdaptedBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(width), Adapted(width), Adapted(width)

    def forward(self, x):
        return x + self.second(F.gelu(self.first(self.norm(x))))
""",
    "Experts": """
class Experts(nn.Module):
    \"\"\"All experts see all tokens, and a gate weighs them.\"\"\"

    def __init__(self, block, width, count):
        super().__init__()
        self.gate, self.experts = nn.Linear(width, count), nn.ModuleList(block(width) for _ in range(count))

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        return sum(weights[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))
""",
    "Residual": """
class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, width), nn.Conv2d(width, width, 3, padding=1)
        self.norm2, self.conv2 = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
""",
    "Inverted": """
class Inverted(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depth, self.norm = nn.Conv2d(width, width, 5, padding=2, groups=width), nn.BatchNorm2d(width)
        self.up, self.down = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(3 * width, width, 1)

    def forward(self, x):
        return x + self.down(F.hardswish(self.up(self.norm(self.depth(x)))))
""",
}
# Before the model: what other classes need.
ORDER = tuple(CLASSES)

OWN_OPTIMIZER = """
class Signs(torch.optim.Optimizer):
    \"\"\"Steps by the sign of a running mean, which is all that it keeps.\"\"\"

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                    mean.mul_(0.9).add_(p.grad, alpha=0.1)
                    p.add_(torch.sign(mean), alpha=-group["lr"])
"""

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "4")

PLANS = {
    "replicated": ("--strategy", "NO_SHARD", "--activation-checkpointing", "none"),
    "sharded": ("--strategy", "FULL_SHARD", "--activation-checkpointing", "none", "--wrap", "blocks"),
    "kept": ("--strategy", "SHARD_GRAD_OP", "--activation-checkpointing", "none", "--wrap", "blocks"),
    "hybrid": ("--shard", "2", "--replicate", "2", "--activation-checkpointing", "none", "--wrap", "blocks"),
    "checkpointed": ("--strategy", "FULL_SHARD", "--activation-checkpointing", "full", "--wrap", "blocks"),
    "finer": ("--strategy", "FULL_SHARD", "--activation-checkpointing", "none", "--wrap", "projections"),
    "mixed": ("--strategy", "FULL_SHARD", "--activation-checkpointing", "none", "--wrap", "blocks", "--precision", "mixed"),
    "searched": (),
}


Stage = tuple[str, Callable[[], None]]


@dataclass(frozen=True)
class Drawn:
    seed: int
    text: str
    traits: tuple[str, ...]
    plans: dict[str, tuple[str, ...]]
    refusal: str = ""  # part of the sentence that is printed in place of a capture
    launcher: tuple[str, ...] = ()  # of Python
    options: tuple[str, ...] = ()  # of the capture


@dataclass
class _Model:
    """The lines of a model that is being written."""

    classes: set[str] = field(default_factory=set)
    init: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    traits: list[str] = field(default_factory=list)


class _Writer:
    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._seed = seed
        self._model = _Model()
        self._stages = 0
        self._are_images = self._dice.random() < 0.2
        if self._are_images:
            self._width, self._side, self._batch = self._dice.choice((32, 48, 64, 96)), self._dice.choice((16, 32)), self._dice.choice((8, 16, 32))
        else:
            self._width, self._length, self._batch = self._dice.choice((256, 320, 384, 512)), self._dice.choice((64, 128, 192)), self._dice.choice((4, 8, 16))
        self._words = self._dice.choice((1000, 2000, 4096))

    def draw(self) -> Drawn:
        dice = self._dice
        self._begin()
        of_blocks, others = self._kinds()
        for stage in range(dice.randint(1, 3)):
            name, write = dice.choice(of_blocks + others if stage else of_blocks)
            self._model.traits.append(name)
            write()
        self._end()
        dtype = dice.choice(("float32", "float32", "bfloat16", "autocast")) if not self._are_images else dice.choice(("float32", "autocast"))
        self._model.traits.append(dtype)
        loop, refusal = self._loop(dtype)
        is_ddp = "DistributedDataParallel" in self._model.traits
        text = "\n".join((f'"""Drawn by seed {self._seed}: {", ".join(self._model.traits)}."""', "", self._head(), self._classes(), self._text_of_model(), loop))
        names = [name for name in PLANS if name != "mixed" or dtype == "float32"]
        plans = {name: PLANS[name] for name in sorted(dice.sample(names, 2))}
        return Drawn(self._seed, text, tuple(self._model.traits), plans, refusal, TORCHRUN if is_ddp else (), ("--gpus", "4") if is_ddp else ())

    # ---- the model -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        model = self._model
        if self._are_images:
            model.init.append(f"self.first = nn.Conv2d(3, {self._width}, 3, padding=1)")
            model.forward.append("x = self.first(given)")
            return
        model.init.append(f"self.words, self.places = nn.Embedding({self._words}, {self._width}), nn.Embedding({self._length}, {self._width})")
        where = self._dice.choice(("given.device", "given.device", "'cpu'"))
        if where == "'cpu'":
            model.traits.append("positions from the CPU")
        moved = ".to(given.device)" if where == "'cpu'" else ""
        model.forward.append(f"x = self.words(given) + self.places(torch.arange(given.shape[1], device={where}){moved})")

    def _kinds(self) -> tuple[list[Stage], list[Stage]]:
        """Stages of blocks, and those that have none or none that a plan could cut."""
        of_blocks: list[Stage] = [("a stack", self._stack), ("a shared block", self._shared), ("a tied stack", self._tied), ("towers", self._towers),
                                  ("skips", self._skips), ("a frozen stack", self._frozen)]
        others: list[Stage] = [("a frozen stack without gradients", self._frozen_alone), ("a scale", self._scaled), ("an unused module", self._unused),
                               ("a running mean", self._running), ("a number on the CPU", self._multiplied)]
        if not self._are_images:
            of_blocks += [("a nested encoder", self._nested), ("crossed blocks", self._crossed), ("adapters", self._adapted), ("experts", self._experts)]
            others += [("a layer that runs again", self._refined), ("a parameter that is read", self._read), ("a dropped tail", self._halved)]
        return of_blocks, others

    def _block(self) -> str:
        names = ("Residual", "Inverted") if self._are_images else ("Perceptron", "Gated", "Attention", "Mixing", "OwnProduct")
        name = self._dice.choice(names)
        self._model.classes.add(name)
        return name

    def _name(self) -> str:
        self._stages += 1
        return f"stage{self._stages}"

    def _write(self, init: str, *forward: str) -> None:
        self._model.init.append(init)
        self._model.forward += forward

    def _stack(self) -> None:
        name = self._name()
        self._write(f"self.{name} = nn.ModuleList({self._block()}({self._width}) for _ in range({self._dice.randint(2, 4)}))",
                    f"for block in self.{name}:", "    x = block(x)")

    def _shared(self) -> None:
        name = self._name()
        self._write(f"self.{name} = {self._block()}({self._width})", f"for _ in range({self._dice.randint(2, 5)}):", f"    x = self.{name}(x)")

    def _tied(self) -> None:
        name, block = self._name(), self._block()
        order = self._dice.choice(("[first, second, first, second]", "[first, first, second]", "[first, second, second, first]"))
        self._write(f"first, second = {block}({self._width}), {block}({self._width})", f"for block in self.{name}:", "    x = block(x)")
        self._model.init.append(f"self.{name} = nn.ModuleList({order})")

    def _towers(self) -> None:
        left, right = self._name(), self._name()
        for name in (left, right):
            self._model.init.append(f"self.{name} = nn.Sequential(*({self._block()}({self._width}) for _ in range({self._dice.randint(1, 3)})))")
        joined = self._dice.choice((f"self.{left}(x) + self.{right}(x)", f"self.{left}(x) * torch.sigmoid(self.{right}(x))",
                                    f"torch.maximum(self.{left}(x), self.{right}(x))"))
        self._model.forward.append(f"x = {joined}")

    def _skips(self) -> None:
        down, up, count = self._name(), self._name(), self._dice.randint(2, 3)
        block = self._block()
        if self._are_images:
            self._model.init.append(f"self.{up} = nn.ModuleList(nn.Sequential(nn.Conv2d({2 * self._width}, {self._width}, 1), {block}({self._width})) for _ in range({count}))")
        else:
            self._model.classes.add("Joined")
            self._model.init.append(f"self.{up} = nn.ModuleList(Joined({block}, {self._width}) for _ in range({count}))")
        self._write(f"self.{down} = nn.ModuleList({block}({self._width}) for _ in range({count}))", "skipped = []", f"for block in self.{down}:", "    x = block(x)",
                    "    skipped.append(x)", f"for block in self.{up}:",
                    "    x = block(torch.cat((x, skipped.pop()), dim=1))" if self._are_images else "    x = block(x, skipped.pop())")

    def _frozen(self) -> None:
        name = self._name()
        self._write(f"self.{name} = nn.Sequential(*({self._block()}({self._width}) for _ in range({self._dice.randint(2, 3)}))).requires_grad_(False)",
                    f"x = self.{name}(x)")

    def _frozen_alone(self) -> None:
        name = self._name()
        self._write(f"self.{name} = nn.Sequential(*({self._block()}({self._width}) for _ in range({self._dice.randint(2, 3)}))).requires_grad_(False)",
                    "with torch.no_grad():", f"    seen = self.{name}(x)", "x = x + seen")

    def _scaled(self) -> None:
        name, value = self._name(), self._dice.choice(("torch.tensor(1.0)", "torch.ones(1)", "torch.ones([])"))
        self._write(f"self.{name} = nn.Parameter({value})", self._dice.choice((f"x = x * self.{name}", f"x = x * self.{name}.exp()")))

    def _unused(self) -> None:
        self._write(f"self.{self._name()} = {self._block()}({self._width})")

    def _running(self) -> None:
        name = self._name()
        shape = f"1, {self._width}, 1, 1" if self._are_images else f"{self._width}"
        over = "(0, 2, 3), keepdim=True" if self._are_images else "(0, 1)"
        self._write(f'self.register_buffer("{name}", torch.zeros({shape}))', f"mean = x.detach().float().mean({over})",
                    f"self.{name}.mul_(0.9).add_(mean, alpha=0.1)", f"x = x - self.{name}.to(x.dtype)")

    def _refined(self) -> None:
        name = self._name()
        self._write(f"self.{name} = nn.Linear({self._width}, {self._width})", f"for _ in range({self._dice.randint(2, 4)}):", f"    x = F.gelu(self.{name}(x))")

    def _nested(self) -> None:
        name = self._name()
        block = self._block()
        self._model.classes.add("Encoder")
        self._write(f"self.{name} = Encoder({block}, {self._width}, {self._dice.randint(1, 3)})", f"for _ in range({self._dice.randint(1, 3)}):", f"    x = self.{name}(x)")

    def _crossed(self) -> None:
        name, of_memory = self._name(), self._name()
        self._model.classes.add("Crossed")
        self._model.init.append(f"self.{of_memory} = {self._block()}({self._width})")
        self._write(f"self.{name} = nn.ModuleList(Crossed({self._width}) for _ in range({self._dice.randint(2, 3)}))", f"memory = self.{of_memory}(x)",
                    f"for block in self.{name}:", "    x = block(x, memory)")

    def _adapted(self) -> None:
        name = self._name()
        self._model.classes.add("Adapted")
        self._write(f"self.{name} = nn.ModuleList(AdaptedBlock({self._width}) for _ in range({self._dice.randint(2, 4)}))", f"for block in self.{name}:", "    x = block(x)")

    def _experts(self) -> None:
        name = self._name()
        block = self._block()
        self._model.classes.add("Experts")
        self._write(f"self.{name} = Experts({block}, {self._width}, {self._dice.randint(2, 3)})", f"x = self.{name}(x)")

    def _read(self) -> None:
        name = self._name()
        self._write(f"self.{name} = nn.Parameter(torch.randn({self._width}, {self._width}) / {self._width})",
                    self._dice.choice((f"x = x + x @ self.{name}", f"x = x + F.linear(x, self.{name})")))

    def _multiplied(self) -> None:
        self._model.forward.append("x = x * torch.tensor(0.5)")

    def _halved(self) -> None:
        """Half of the positions go on."""
        self._model.forward.append("x = x[:, : x.shape[1] // 2]")

    def _end(self) -> None:
        dice, model = self._dice, self._model
        if self._are_images:
            model.init.append(f"self.head = nn.Linear({self._width}, 10)")
            model.forward.append("logits = self.head(x.mean((2, 3)))")
            return
        model.init.append(f"self.norm, self.head = nn.LayerNorm({self._width}), nn.Linear({self._width}, {self._words}, bias=False)")
        if dice.random() < 0.25:
            model.init.append("self.head.weight = self.words.weight")
            model.traits.append("tied embeddings")
        model.forward.append("logits = self.head(self.norm(x))")

    # ---- losses ----------------------------------------------------------------------------------------------------

    def _loss(self) -> list[str]:
        """Lines from `logits` and `labels` to `loss`."""
        dice = self._dice
        if self._are_images:
            plain = ["loss = F.cross_entropy(logits.float(), labels)"]
            kinds = {"": plain, "a loss and a penalty": [*plain, "loss = loss + 1e-3 * logits.float().square().mean()"]}
        else:
            plain = ["loss = F.cross_entropy(logits.flatten(0, 1).float(), labels[:, : logits.shape[1]].flatten())"]
            kinds = {
                "": plain,
                "two losses": [*plain, "loss = loss + 0.1 * torch.logsumexp(logits.float(), -1).square().mean()"],
                "a loss in pieces": [
                    "pieces = zip(logits.chunk(4, dim=1), labels[:, : logits.shape[1]].chunk(4, dim=1))",
                    'loss = sum(F.cross_entropy(one.flatten(0, 1).float(), other.flatten(), reduction="sum") for one, other in pieces) / labels.numel()',
                ],
                "a loss with weights": [
                    'each = F.cross_entropy(logits.flatten(0, 1).float(), labels[:, : logits.shape[1]].flatten(), reduction="none")',
                    "loss = (each * torch.rand_like(each)).mean()",
                ],
            }
        name = dice.choice(tuple(kinds))
        if name:
            self._model.traits.append(name)
        return kinds[name]

    # ---- the loop --------------------------------------------------------------------------------------------------

    def _optimizer(self) -> tuple[list[str], str]:
        """Lines that make one, and why it is refused."""
        dice = self._dice
        trained = "[p for p in model.parameters() if p.requires_grad]"
        groups = ('[{"params": [p for p in model.parameters() if p.requires_grad and p.dim() > 1], "weight_decay": 0.1},\n'
                  '     {"params": [p for p in model.parameters() if p.requires_grad and p.dim() <= 1], "weight_decay": 0.0}]')
        kinds = [
            ("AdamW", f"torch.optim.AdamW({trained}, lr=1e-3)", ""), ("AdamW of all", "torch.optim.AdamW(model.parameters(), lr=1e-3)", ""),
            ("AdamW in groups", f"torch.optim.AdamW(\n    {groups}, lr=1e-3)", ""), ("fused AdamW", f"torch.optim.AdamW({trained}, lr=1e-3, fused=True)", ""),
            ("AdamW, one by one", f"torch.optim.AdamW({trained}, lr=1e-3, foreach=False)", ""), ("Adam", f"torch.optim.Adam({trained}, lr=1e-3)", ""),
            ("Adam with decay", f"torch.optim.Adam({trained}, lr=1e-3, weight_decay=0.01)", ""),
            ("SGD", f"torch.optim.SGD({trained}, lr=1e-3)", ""), ("SGD with momentum", f"torch.optim.SGD({trained}, lr=1e-3, momentum=0.9)", ""),
            ("Nesterov's SGD", f"torch.optim.SGD({trained}, lr=1e-3, momentum=0.9, nesterov=True, weight_decay=1e-4)", ""),
            ("NAdam", f"torch.optim.NAdam({trained}, lr=1e-3)", ""), ("Adadelta", f"torch.optim.Adadelta({trained}, lr=1e-3)", ""),
            ("RMSprop", f"torch.optim.RMSprop({trained}, lr=1e-3)", "keeps states of"), ("an optimizer of its own", f"Signs({trained}, lr=1e-3)", "keeps states of"),
        ]
        name, line, refusal = dice.choice(kinds[:12]) if dice.random() < 0.93 else dice.choice(kinds[12:])
        self._model.traits.append(name)
        lines = [f"optimizer = {line}"]
        if dice.random() < 0.3:
            lines.append("scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))")
        return lines, refusal

    def _batches(self) -> tuple[list[str], list[str]]:
        """Lines before the loop, and of a micro-batch."""
        dice, batch = self._dice, self._batch
        if self._are_images:
            shape, labels = f"{batch}, 3, {self._side}, {self._side}", f"torch.randint(10, ({batch},)"
            given, made = f"torch.randn({shape}", f"torch.randn(64, {shape}"
        else:
            given = f"torch.randint({self._words}, ({batch}, {self._length})"
            labels, made = "", f"torch.randint({self._words}, (64, {batch}, {self._length})"
        of_labels = "labels = given" if not labels else f'labels = {labels}, device="cuda")'
        way = dice.choice(("made", "made", "moved", "data"))
        if way == "made":
            return [], [f'given = {given}, device="cuda")', of_labels]
        self._model.traits.append("batches from the CPU" if way == "moved" else "data on the GPU")
        if way == "moved":
            return [], [f"given = {given}).cuda()", of_labels]
        return [f'data = {made}, device="cuda")'], ["given = data[step % 64]", of_labels]

    def _loop(self, dtype: str) -> tuple[str, str]:
        dice = self._dice
        traits = self._model.traits
        making = dice.choice(("model = Model().cuda()", 'with torch.device("cuda"):\n    model = Model()', 'model = Model().to("cuda")'))
        if "tied embeddings" in traits:  # the head's own weight, made on the GPU, would leave room behind that a plan does not know of
            making = "model = Model().cuda()"
        lines = [f"torch.manual_seed({self._seed})", making]
        if dtype == "bfloat16":
            lines.append("model.bfloat16()")
        made, refusal = self._optimizer()
        wrapper = dice.choice(("",) * 7 + ("DataParallel", "torch.compile", "DistributedDataParallel"))
        if wrapper == "DistributedDataParallel":
            lines[:0] = ['torch.distributed.init_process_group("nccl")', 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))']
            lines.append('model = nn.parallel.DistributedDataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])])')
        elif wrapper:
            lines.append("model = torch.compile(model)" if wrapper == "torch.compile" else "model = nn.DataParallel(model)")
        traits += [wrapper] if wrapper else []
        lines += made
        before, of_batch = self._batches()
        lines += before
        loss = self._loss()
        micro = dice.choice((1, 1, 1, 2, 3))
        clearing = dice.choice(("behind", "behind", "front", "between")) if micro == 1 else dice.choice(("behind", "front"))
        kept = "set_to_none=False" if dice.random() < 0.1 else ""
        clear = f"optimizer.zero_grad({kept})"
        traits += ([f"{micro} micro-batches"] if micro > 1 else []) + ([f"clears {clearing}"] if clearing != "behind" else []) + (["zeroes gradients"] if kept else [])
        body = [clear] if clearing == "front" else []
        step = [*of_batch]
        call = ["logits = model(given)", *loss]
        step += ['with torch.autocast("cuda", torch.bfloat16):', *(f"    {line}" for line in call)] if dtype == "autocast" else call
        step += [clear] if clearing == "between" else []
        step.append(f"(loss / {micro}).backward()" if micro > 1 else "loss.backward()")
        if micro > 1 and wrapper == "DistributedDataParallel":
            traits.append("no_sync")
            step = [f"with contextlib.nullcontext() if micro + 1 == {micro} else model.no_sync():", *(f"    {line}" for line in step)]
        body += [f"for micro in range({micro}):", *(f"    {line}" for line in step)] if micro > 1 else step
        if dice.random() < 0.4:
            traits.append("clips")
            body.append("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
        body.append("optimizer.step()")
        body += ["scheduler.step()"] if any("scheduler" in line for line in made) else []
        body += [clear] if clearing == "behind" else []
        body += self._habits(lines)
        if micro > 1 and "evaluates" in traits:
            refusal = refusal or "evaluates its model after each step"
        text = "\n".join([*lines, "for step in range(20):", *(f"    {line}" for line in body), ""])
        return text, refusal

    def _habits(self, lines: list[str]) -> list[str]:
        """What a script does after a step."""
        dice, traits = self._dice, self._model.traits
        found: list[str] = []
        if dice.random() < 0.3:
            traits.append("prints the loss")
            found.append("print(step, loss.item(), flush=True)")
        elif dice.random() < 0.3:
            traits.append("keeps losses")
            lines.append("losses = []")
            found.append("losses.append(loss.detach())")
        if dice.random() < 0.15:
            traits.append("an average of weights")
            lines.append("averages = [p.detach().clone() for p in model.parameters()]")
            found += ["with torch.no_grad():", "    for average, p in zip(averages, model.parameters()):", "        average.mul_(0.99).add_(p.detach(), alpha=0.01)"]
        if dice.random() < 0.15:
            traits.append("evaluates")
            found += ["model.eval()", "with torch.no_grad():", "    model(given[: len(given) // 2])", "model.train()"]
        return found

    # ---- text --------------------------------------------------------------------------------------------------------

    def _head(self) -> str:
        return "import contextlib\nimport os\n\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"

    def _classes(self) -> str:
        own = OWN_OPTIMIZER if "an optimizer of its own" in self._model.traits else ""
        return "\n".join([CLASSES[name] for name in ORDER if name in self._model.classes] + [own])

    def _text_of_model(self) -> str:
        return "\n".join(["", "class Model(nn.Module):", "    def __init__(self):", "        super().__init__()", *(f"        {line}" for line in self._model.init),
                          "", "    def forward(self, given):", *(f"        {line}" for line in self._model.forward), "        return logits", "", ""])


def draw(seed: int) -> Drawn:
    """The script of a seed."""
    return _Writer(seed).draw()
