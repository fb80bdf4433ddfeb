"""The parts of a rehearsed process that need no torch: what makes a step, when the peak was, whose line it is."""

import builtins
import importlib
import json
import os
import pathlib
import sys
import sysconfig
import tempfile
import unittest
import weakref
from array import array
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True

from fsdp_rehearsal import after_import, faults, frames, guard, settings, zero_checks  # noqa: E402
from fsdp_rehearsal.ledger import Label, Ledger, curve, rows_at_peak  # noqa: E402
from fsdp_rehearsal.loops import EndlessLoop, Loops  # noqa: E402
from fsdp_rehearsal.memory import Timeline  # noqa: E402
from fsdp_rehearsal.meter import Cut  # noqa: E402
from fsdp_rehearsal.sizes import Total, elements_of  # noqa: E402
from fsdp_rehearsal.steps import Steps  # noqa: E402
from fsdp_rehearsal.versions import check_torch  # noqa: E402


class Parameters(unittest.TestCase):
    def test_packed_weights_count_their_unpacked_elements(self):
        plain = mock.Mock(spec=["numel"])
        plain.numel.return_value = 12
        self.assertEqual(elements_of(plain), 12)
        packed = mock.Mock(spec=["numel", "quant_state"])
        packed.numel.return_value, packed.quant_state.shape = 6, (3, 4)
        self.assertEqual(elements_of(packed), 12)

    def test_module_knows_the_dtype_of_a_sharded_weight(self):
        weight = mock.Mock(spec=["numel", "requires_grad", "dtype"], requires_grad=False, dtype="torch.bfloat16")
        weight.numel.return_value = 6
        module = mock.Mock(spec=["weight", "quant_state"], weight=weight)
        module.quant_state.shape, module.quant_state.quant_type = (3, 8), "nf4"
        root = mock.Mock(spec=["modules", "parameters"])
        root.modules.return_value, root.parameters.return_value = [root, module], [weight]
        total = Total()
        total.add(root)
        self.assertEqual((total.parameters, total.trainable, total.dtypes), (24, 0, {"nf4": 24}))


class Torch(unittest.TestCase):
    def test_untested_release_is_named(self):
        with mock.patch.object(guard, "warnings", []), mock.patch.object(guard, "_seen", set()):
            for version in ("2.8.0", "2.11.0+cu130", "2.14.1"):
                check_torch(version)
            self.assertEqual(guard.warnings, [])
            check_torch("2.6.0+cu124")
            self.assertIn("torch 2.6.0+cu124 is untested", guard.warnings[0]["text"])


class Optimizer:
    """Anything that can be called again, and referred to weakly."""


class Parameter:
    requires_grad = True

    def numel(self):
        return 1


class Trained(Optimizer):
    """One with something to train."""

    def __init__(self, param_groups=None):
        self.param_groups = param_groups or [{"params": [Parameter()]}]


class Program:
    """Says to Steps what a training script does."""

    def __init__(self, limit=0):
        self.backwards, self.phase, self.in_backward, self.stopped_at = 0, "forward", False, None
        self.steps = Steps(self, self, self, limit, self.stop)
        self.calls = 0

    def enter(self, phase):
        self.phase = phase

    def cut(self, name):
        pass

    def drain_if_long(self):
        pass

    def stop(self):
        self.stopped_at = self.stopped_at or self.calls

    def made(self, *optimizers):
        self.steps._made += [(weakref.ref(optimizer), {}) for optimizer in optimizers]

    def backward(self):
        self.backwards += 1

    def call(self, *optimizers):
        for optimizer in optimizers:
            self.calls += 1
            self.steps._called(optimizer, (), {})


class StepDetection(unittest.TestCase):
    def test_one_optimizer(self):
        program, optimizer = Program(limit=3), Optimizer()
        for _ in range(3):
            program.backward()
            program.call(optimizer)
        self.assertEqual((program.steps.done, program.stopped_at), (3, 3))

    def test_accumulation_of_gradients(self):
        program, optimizer = Program(), Optimizer()
        for _ in range(2):
            for _ in range(4):
                program.backward()
            program.call(optimizer)
        self.assertEqual(program.steps.done, 2)

    def test_several_optimizers_side_by_side(self):
        program, parts = Program(limit=2), [Optimizer() for _ in range(3)]
        for _ in range(2):
            program.backward()
            program.call(*parts)
        self.assertEqual((program.steps.calls_per_step, program.steps.done, program.stopped_at), (3, 2, 6))

    def test_two_optimizers_in_turn(self):
        """As in a GAN: the discriminator's backward and step, then the generator's."""
        program, one, two = Program(limit=2), Optimizer(), Optimizer()
        for _ in range(2):
            for optimizer in (one, two):
                program.backward()
                program.call(optimizer)
        self.assertEqual((program.steps.calls_per_step, program.stopped_at), (2, 4))

    def test_the_same_optimizer_once_a_group_of_parameters(self):
        """As in ZeRO-3."""
        program, optimizer = Program(), Optimizer()
        for _ in range(2):
            program.backward()
            program.call(*[optimizer] * 5)
        self.assertEqual((program.steps.calls_per_step, program.steps.done), (5, 2))

    def test_a_step_lasts_until_its_wrapper_returns(self):
        """As in ZeRO, which gathers the parameters after the optimizer's step."""
        program, optimizer = Program(limit=2), Optimizer()

        class Zero:
            def step(self, calls):
                program.call(*[optimizer] * calls)
                return program.steps.done

        program.steps.install_wrapper(Zero)
        for _ in range(3):
            program.backward()
            Zero().step(calls=0)  # Gradients overflowed.
            program.backward()
            self.assertEqual(Zero().step(calls=5), program.steps.done - 1)
        self.assertEqual((program.steps.calls_per_step, program.steps.done, program.stopped_at), (1, 3, 10))

    def test_step_waits_for_every_optimizer(self):
        """As in a GAN whose critic steps three times before the generator does."""
        program, critic, generator = Program(limit=2), Trained(), Trained()
        program.made(critic, generator)
        for _ in range(2):
            for optimizer in (critic, critic, critic, generator):
                program.backward()
                program.call(optimizer)
        self.assertEqual((program.steps.calls_per_step, program.stopped_at), (4, 8))

    def test_step_does_not_wait_for_idle_optimizers(self):
        program, one, other = Program(limit=2), Trained(), Trained()
        program.made(one, other)
        for _ in range(60):
            program.backward()
            program.call(one)
        self.assertEqual((program.steps.calls_per_step, program.stopped_at), (1, 52))
        program, replaced = Program(limit=2), Trained(one.param_groups)
        program.made(one, replaced)
        for _ in range(2):
            program.backward()
            program.call(one)
        self.assertEqual(program.stopped_at, 2)

    def test_one_optimizer_a_parameter_inside_backward(self):
        program, parts = Program(), [Optimizer() for _ in range(4)]
        program.in_backward = True
        for _ in range(3):
            program.backward()
            program.call(*parts)
        self.assertEqual((program.steps.calls_per_step, program.steps.done), (4, 3))


def events(*texts):
    """"+a 100" allocates 100 bytes at a, "-a" asks for their free and completes it."""
    entries = []
    for text in texts:
        name, *size = text[1:].split()
        if text[0] == "+":
            frame = [{"filename": f"/job/{name}.py", "line": 7, "name": "f"}]
            entries.append({"action": "alloc", "addr": name, "size": int(size[0]), "frames": frame})
        else:
            entries.append({"action": "free_requested", "addr": name, "size": 0})
            entries.append({"action": "free_completed", "addr": name, "size": 0})
    return entries


def nothing_known(text, position):
    return Label("forward")


class PeakMoment(unittest.TestCase):
    script = events("+a 100", "+b 1000", "-a", "+c 600", "-b", "-c", "+d 1500")

    def check(self, ledger):
        self.assertEqual((ledger.peak.bytes, ledger.peak.position), (1600, 4))
        alive = {(row["file"], row["bytes"]) for row in rows_at_peak(ledger)}
        self.assertEqual(alive, {("/job/b.py", 1000), ("/job/c.py", 600)})
        # Each rounded up to 512: 512, 1536, 1024 twice, 2048, 1024 twice, 0 twice, 1536.
        self.assertEqual(list(ledger.rounded), [512, 1536, 1024, 1024, 2048, 1024, 1024, 0, 0, 1536])

    def test_history_in_one_piece(self):
        ledger = Ledger()
        ledger.feed(self.script, nothing_known)
        self.check(ledger)

    def test_history_in_pieces(self):
        for at in range(len(self.script)):
            ledger = Ledger()
            ledger.feed(self.script[:at], nothing_known)
            ledger.feed(self.script[at:], nothing_known)
            with self.subTest(at=at):
                self.check(ledger)

    def test_rows_beyond_the_limit_are_merged(self):
        ledger = Ledger()
        ledger.feed(events(*[f"+x{i} {i + 1}" for i in range(30)]), nothing_known)
        rows = rows_at_peak(ledger, most=20)
        self.assertEqual((len(rows), rows[0]["bytes"], rows[-1]["file"]), (21, 30, ""))
        self.assertEqual((rows[-1]["count"], rows[-1]["bytes"]), (10, sum(range(1, 11))))

    def test_allocation_without_python_belongs_to_the_backward_call(self):
        ledger = Ledger()
        label = Label("backward", "", ("/job/train.py", 14, "main"))
        ledger.feed([{"action": "alloc", "addr": 1, "size": 8, "frames": []}], lambda text, position: label)
        (row,) = rows_at_peak(ledger)
        self.assertEqual((row["file"], row["line"], row["framework"]), ("/job/train.py", 14, "autograd"))

    def test_failed_allocation_is_recorded(self):
        ledger = Ledger()
        ledger.feed(events("+a 100") + [{"action": "oom", "size": 900, "frames": []}], nothing_known)
        self.assertEqual([(f["size"], f["position"]) for f in ledger.failures], [(900, 1)])

    def test_a_curve_keeps_the_highest_of_each_point(self):
        points = array("q", [10, 50, 20, 30, 90, 40])
        self.assertEqual(curve(points, 1, 6, 10, most=3), ([50, 90, 40], 2))
        self.assertEqual(curve(points, 1, 6, 15, most=3), ([55, 95, 45], 2), "moved to what the allocator said")
        self.assertEqual(curve(points, 3, 3, 0), ([], 1))


class StepsOfARun(unittest.TestCase):
    def cuts(self, *names):
        return [Cut(n, 10 * i, 0, float(i), 0, {"allocated": i, "device": i}) for i, n in enumerate(names, 1)]

    def test_two_calls_a_step(self):
        timeline = Timeline(self.cuts("initialization", "step", "step", "step", "step", "end"), 2)
        self.assertEqual([[c.position for c in s] for s in timeline.steps], [[20, 30], [40, 50]])
        self.assertEqual([timeline.step_at(p) for p in (0, 9, 10, 29, 30, 49, 50)], [0, 0, 1, 1, 2, 2, 3])
        rows = {p["phase"]: p["allocated"] for p in timeline.phases()}
        self.assertEqual(rows, {"initialization": 1, "first_step": 3, "steady_step": 6})

    def test_an_evaluation_is_no_part_of_a_step(self):
        names = ("initialization", "step", "part", "evaluation", "step", "part", "saving")
        timeline = Timeline(self.cuts(*names), 1)
        self.assertEqual([[c.position for c in s] for s in timeline.steps], [[20], [50]])
        rows = {p["phase"]: p["allocated"] for p in timeline.phases()}
        # What was seen of the second step before the evaluation belongs to it.
        self.assertEqual(rows, {"initialization": 1, "first_step": 2, "steady_step": 6, "evaluation": 4, "saving": 7})

    def test_a_run_that_fails_in_its_first_step(self):
        timeline = Timeline(self.cuts("initialization", "end"), None)
        self.assertEqual(timeline.steps, [])
        self.assertEqual({p["phase"]: p["allocated"] for p in timeline.phases()}, {"initialization": 1, "first_step": 2})


class WaitingLoops(unittest.TestCase):
    def setUp(self):
        self.steps, self.now = 0, 0.0
        self.loops = Loops(lambda: self.steps, lambda: self.now)

    def ask(self, is_bool=True):
        return self.loops.answer(is_bool)

    def test_while_loop_gets_the_opposite_after_many_reads(self):
        asked = 1
        while not self.ask():
            asked += 1
        self.assertEqual(asked, 4096)

    def test_slow_loop_gets_the_opposite_sooner(self):
        asked = 1
        while not self.ask():
            asked, self.now = asked + 1, self.now + 0.1
        self.assertEqual(asked, 256)

    def test_for_loops_and_training_loops_are_unchanged(self):
        self.assertEqual([self.ask() for _ in range(5000) if self.ask() is not None], [])
        while self.steps < 9000:
            self.steps += 1
            self.assertIsNone(self.ask())

    def test_loop_ends_after_several_numbers(self):
        told = []
        with self.assertRaises(EndlessLoop):
            while True:
                answer = self.ask(is_bool=False)
                told += [answer] if answer is not None else []
        self.assertEqual(told, [1.0, -1.0, 1e9, -1e9])


class NamedLines(unittest.TestCase):
    def frame(self, file, line=1):
        return {"file": file, "line": line, "function": "f"}

    def test_the_users_innermost_line_names_a_stack(self):
        torch, library = "/x/lib/python3.11/site-packages/torch/nn/a.py", "/x/lib/python3.11/site-packages/titan/t.py"
        standard = sysconfig.get_path("stdlib") + "/threading.py"
        stack = [self.frame(p) for p in (torch, "/job/model.py", library, "/job/train.py", standard)]
        self.assertEqual(frames.named(stack)["file"], "/job/model.py")
        self.assertEqual(frames.named([self.frame(p) for p in (torch, library, standard)])["file"], library)
        self.assertEqual(frames.named([self.frame(torch)])["file"], torch)
        self.assertIsNone(frames.named([self.frame("<string>"), self.frame(standard)]))
        self.assertEqual(frames.short(torch), "torch/nn/a.py")


class AfterImport(unittest.TestCase):
    def test_actions_run_in_order_once_the_module_is_there(self):
        calls = []
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "a_module_of_this_test.py").write_text("value = 1\n")
            sys.path.insert(0, folder)
            try:
                for name in "ab":
                    after_import.after_import("a_module_of_this_test", lambda m, n=name: calls.append((n, m.value)))
                self.assertIsNotNone(importlib.util.find_spec("a_module_of_this_test"))
                self.assertEqual(calls, [], "looking for a module is not importing it")
                module = importlib.import_module("a_module_of_this_test")
                after_import.after_import("a_module_of_this_test", lambda m: calls.append(("late", m.value)))
            finally:
                sys.path.remove(folder)
        self.assertEqual(calls, [("a", 1), ("b", 1), ("late", 1)])
        self.assertEqual(type(module.__spec__.loader).__name__, "SourceFileLoader")

    def test_actions_wait_for_an_import_under_way(self):
        """As accelerate, which imports torch, whose import is what installs us."""
        calls = []
        builtins.of_this_test = lambda: after_import.after_import("a_module_under_way", lambda m: calls.append(m.value))
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "a_module_under_way.py").write_text("import builtins\nbuiltins.of_this_test()\nvalue = 1\n")
            sys.path.insert(0, folder)
            try:
                importlib.import_module("a_module_under_way")
            finally:
                sys.path.remove(folder)
                del builtins.of_this_test
        self.assertEqual(calls, [1])

    def test_an_action_that_fails_is_a_warning(self):
        before = len(guard.warnings)
        after_import.after_import("json", lambda module: module.no_such_name)
        self.assertEqual([w["kind"] for w in guard.warnings[before:]], ["probe"])
        self.assertEqual(json.loads("1"), 1)


class Faults(unittest.TestCase):
    def test_whole_chain_of_exceptions_is_searched(self):
        class OutOfMemoryError(RuntimeError):
            pass

        noted = faults.Faults(lambda: None)
        try:
            try:
                raise OutOfMemoryError("CUDA out of memory")
            except OutOfMemoryError as error:
                raise ValueError("wrapped") from error
        except ValueError as error:
            noted.note(error)
        self.assertTrue(noted.exception["out_of_memory"])
        self.assertEqual([t.split(".")[-1] for t in noted.exception["types"]], ["ValueError", "OutOfMemoryError"])


    def test_lazy_import_error_names_the_missing_module(self):
        noted = faults.Faults(lambda: None)
        try:
            try:
                raise ModuleNotFoundError("No module named 'platformdirs'")
            except ModuleNotFoundError as error:
                raise RuntimeError("Failed to import trl because of the following error (look up to see its traceback)") from error
        except RuntimeError as error:
            noted.note(error)
        self.assertEqual((noted.exception["type"], noted.exception["message"]), ("ModuleNotFoundError", "No module named 'platformdirs'"))


class ChecksOfZero(unittest.TestCase):
    def test_every_rank_records_the_list_of_rank_0(self):
        sent = []
        module = mock.Mock(dist=mock.Mock(get_rank=lambda: 6, broadcast=sent.append))
        zero_checks.install(module)
        numbers = [3, 5] if module.dist.get_rank() == 0 else [-1, -1]
        module.dist.broadcast(numbers)
        self.assertEqual(sent, [[3, 5]])


class Settings(unittest.TestCase):
    def test_every_error_is_reported(self):
        with self.assertRaises(settings.SettingsError) as raised:
            settings.read(
                {
                    "FSDP_REHEARSAL_STUB": __file__,
                    "FSDP_REHEARSAL_RANK": "8",
                    "FSDP_REHEARSAL_WORLD_SIZE": "8",
                    "FSDP_REHEARSAL_STEPS": "-1",
                }
            )
        self.assertIn("FSDP_REHEARSAL_RANK is 8, but there are 8 ranks", str(raised.exception))
        self.assertIn("FSDP_REHEARSAL_STEPS is '-1'", str(raised.exception))


class GeneratedCode(unittest.TestCase):
    def test_code_of_torch_compile_is_not_the_users(self):
        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache):
            file = os.path.join(cache, "ab", "cabc.py")
            self.assertEqual(frames.kind_of(file), frames.FRAMEWORK)
            self.assertEqual(frames.short(file), "inductor/cabc.py")
            self.assertEqual(frames.kind_of(os.path.join(os.path.dirname(cache), "train.py")), frames.USER)


if __name__ == "__main__":
    unittest.main()
